# C58, C62: the headers for MPI with one MPI and one compiler, whatever the build itself uses.
#   cmake -D CHECK=C58_... -D WRAPPER=mpicxx.mpich -D COMPILER=clang++ -D WARNINGS="-Wall ..."
#     -D SOURCE_DIR=... -P compile_mpi.cmake
file(GLOB_RECURSE headers RELATIVE "${SOURCE_DIR}/include"
  "${SOURCE_DIR}/include/rankcast/mpi.hpp" "${SOURCE_DIR}/include/rankcast/transports/mpi/*.hpp")
list(LENGTH headers count)
if(count LESS 5)
  message(FATAL_ERROR "only ${count} headers are left")
endif()

if(CHECK STREQUAL "C62_only_two_types_of_mpi")
  # Every build of MPI has these two; none of Fortran, C++ or complex numbers, no large counts.
  string(CONCAT others "MPI_(CHAR|SIGNED_CHAR|UNSIGNED[A-Z_]*|SHORT[A-Z_]*|INT[0-9A-Z_]*|LONG[A-Z_]*"
    "|U?INT(8|16|32)_T|INT64_T|FLOAT[A-Z_]*|DOUBLE[A-Z_]*|REAL[0-9]*|LOGICAL[0-9]*|INTEGER[0-9]*"
    "|CHARACTER|[A-Z_]*COMPLEX[0-9A-Z_]*|CXX_[A-Z_]+|C_[A-Z_]+|WCHAR|AINT|OFFSET|COUNT|PACKED"
    "|2[A-Z]+|Type_[a-z_]+|[A-Z][a-z_]+_c)[^A-Za-z0-9_]")
  set(found "")
  foreach(header IN LISTS headers)
    file(STRINGS "${SOURCE_DIR}/include/${header}" lines REGEX "MPI_")
    foreach(line IN LISTS lines)
      if("${line} " MATCHES "${others}")
        message(SEND_ERROR "${header} uses another type of MPI's: ${line}")
      endif()
      string(REGEX MATCHALL "MPI_(BYTE|UINT64_T)" types "${line}")
      list(APPEND found ${types})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES found)
  list(SORT found)
  if(NOT found STREQUAL "MPI_BYTE;MPI_UINT64_T")
    message(SEND_ERROR "types of MPI's that were found: ${found}")
  endif()
  return()
endif()

find_program(compiler "${COMPILER}")
find_program(wrapper "${WRAPPER}")
foreach(program compiler wrapper)
  if(NOT ${program})
    string(TOUPPER ${program} name)
    message("skipped: no ${${name}} here")
    return()
  endif()
endforeach()
execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE shown COMMAND_ERROR_IS_FATAL ANY
  OUTPUT_STRIP_TRAILING_WHITESPACE)
separate_arguments(shown UNIX_COMMAND "${shown}")
set(flags "")
foreach(word IN LISTS shown)
  if(word MATCHES "^-I(.+)$")
    list(APPEND flags -isystem "${CMAKE_MATCH_1}")
  endif()
endforeach()
separate_arguments(warnings UNIX_COMMAND "-std=c++20 ${WARNINGS} -I ${SOURCE_DIR}/include")
list(APPEND flags ${warnings})

foreach(header IN LISTS headers)
  # Twice: the second must be nothing.
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/alone_${WRAPPER}_${COMPILER}.cpp")
  file(WRITE "${unit}" "#include \"${header}\"\n#include \"${header}\"\n")
  execute_process(COMMAND ${compiler} ${flags} -fsyntax-only "${unit}" RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(SEND_ERROR "${header} does not stand alone with ${WRAPPER} and ${COMPILER}")
  endif()
endforeach()
# Optimised, for some warnings look into what was inlined.
foreach(file mpi_before mpi_after)
  execute_process(COMMAND ${compiler} ${flags} -O1 -c "${SOURCE_DIR}/tests/build/${file}.cpp"
    -o /dev/null COMMAND_ERROR_IS_FATAL ANY)
endforeach()
