# What rankcast's own programs are compiled with. Never exported: whoever includes rankcast chooses
# for themselves, and the headers stay clean under all of these.
add_library(rankcast_warnings INTERFACE)
target_compile_options(rankcast_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Werror)
# g++ 12 sees overlaps that are not there when strings are joined (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(rankcast_warnings INTERFACE -Wno-restrict)
endif()
