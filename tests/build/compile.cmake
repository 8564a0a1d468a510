# Compiles without any help of the build: no system-include mark, the warnings of
# cmake/RankcastWarnings.cmake as errors.
#   cmake -D COMPILER=clang++ -D CHECK=C59_each_header_alone -D WARNINGS="-Wall ..." \
#     -D SOURCE_DIR=... -D GTEST_INCLUDE=... -P compile.cmake
find_program(compiler "${COMPILER}")
if(NOT compiler)
  message("skipped: no ${COMPILER} here")
  return()
endif()
separate_arguments(flags UNIX_COMMAND "-std=c++20 ${WARNINGS} -I ${SOURCE_DIR}/include")

if(CHECK STREQUAL "C59_each_header_alone")
  file(GLOB_RECURSE headers RELATIVE "${SOURCE_DIR}/include" "${SOURCE_DIR}/include/rankcast/*.hpp")
  string(REPLACE "," ";" absent "${ABSENT}")
  foreach(component IN LISTS absent)  # whose library is not here
    list(FILTER headers EXCLUDE REGEX "^rankcast/(transports/)?${component}(/|\\.hpp)")
  endforeach()
  # Those for MPI need one, and go through each of them in compile_mpi.cmake.
  list(FILTER headers EXCLUDE REGEX "^rankcast/(transports/)?mpi(/|\\.hpp)")
  foreach(header IN LISTS headers)
    # Twice: the second must be nothing.
    set(unit "${CMAKE_CURRENT_BINARY_DIR}/alone_${COMPILER}.cpp")
    file(WRITE "${unit}" "#include \"${header}\"\n#include \"${header}\"\n")
    execute_process(COMMAND ${compiler} ${flags} -fsyntax-only "${unit}" RESULT_VARIABLE result)
    if(NOT result EQUAL 0)
      message(SEND_ERROR "${header} does not stand alone with ${COMPILER}")
    endif()
  endforeach()
else()
  # A folder that the compiler searches anyway must not be named: it would come too early.
  set(gtest "")
  if(NOT GTEST_INCLUDE STREQUAL "/usr/include")
    set(gtest -isystem "${GTEST_INCLUDE}")
  endif()
  # Optimised, for some warnings look into what was inlined.
  foreach(file instantiate callables)
    execute_process(COMMAND ${compiler} ${flags} ${gtest} -O1
      -c "${SOURCE_DIR}/tests/build/${file}.cpp" -o /dev/null
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endif()
