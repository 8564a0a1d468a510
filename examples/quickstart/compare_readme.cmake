# cmake -D README=<file> -D PROGRAM_SOURCE=<file> -D EXPECTED=<file> -P compare_readme.cmake
# Fails unless the README's first C++ block is the program, without its opening comment and in at
# most 15 lines, and the block that follows is its output.
file(READ "${README}" readme)
file(READ "${PROGRAM_SOURCE}" program)
file(READ "${EXPECTED}" output)
string(REGEX REPLACE "^(///[^\n]*\n)+" "" program "${program}")

string(REGEX MATCHALL "[^\n]*\n" lines "${program}")
string(REPLACE ";" "" lines "${program}")  # semicolons would part CMake's list
string(REGEX MATCHALL "\n" lines "${lines}")
list(LENGTH lines count)
if(count GREATER 15)
  message(FATAL_ERROR "the first program has ${count} lines")
endif()

string(FIND "${readme}" "```cpp\n" first_block)
string(SUBSTRING "${readme}" ${first_block} -1 rest)
set(wanted "```cpp\n${program}```\n")
string(FIND "${rest}" "${wanted}" at)
if(NOT at EQUAL 0)
  message(FATAL_ERROR "the first C++ block of ${README} is not ${PROGRAM_SOURCE}")
endif()
string(FIND "${rest}" "```text\n${output}```\n" at)
if(at EQUAL -1)
  message(FATAL_ERROR "${README} does not show the output in ${EXPECTED}")
endif()
