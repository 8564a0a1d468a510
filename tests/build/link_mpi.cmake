# C55: links the units of a program with what the C compiler wrapper of an MPI links, looks for
# symbols of MPI's C++ bindings of old, and runs it.
#   cmake -D OBJECTS=a.o,b.o -D CXX=... -D MPI_CXX=mpicxx -D NM=nm -D PROGRAM=...
#     -D LAUNCH="mpiexec -n 2" -P link_mpi.cmake
string(REGEX REPLACE "mpi(cxx|c\\+\\+|CC)" "mpicc" wrapper "${MPI_CXX}")
if(wrapper STREQUAL MPI_CXX OR NOT EXISTS "${wrapper}")
  message("skipped: no C compiler wrapper beside ${MPI_CXX}")
  return()
endif()
execute_process(COMMAND ${wrapper} --showme:link  # Open MPI
  RESULT_VARIABLE result OUTPUT_VARIABLE flags ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT result EQUAL 0)
  execute_process(COMMAND ${wrapper} -link_info  # MPICH, with the compiler in front
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "^[^ ]+ " "" flags "${flags}")
endif()
message("linked with: ${flags}")
separate_arguments(flags UNIX_COMMAND "${flags}")
string(REPLACE "," ";" objects "${OBJECTS}")
separate_arguments(cxx UNIX_COMMAND "${CXX}")
execute_process(COMMAND ${cxx} ${objects} ${flags} -pthread -o "${PROGRAM}"
  COMMAND_ERROR_IS_FATAL ANY)
foreach(file IN LISTS objects PROGRAM)
  execute_process(COMMAND ${NM} -C "${file}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES "U MPI_")
    message(FATAL_ERROR "${NM} tells nothing of ${file}")
  endif()
  if(symbols MATCHES "[^\n]*MPI::[^\n]*")
    message(FATAL_ERROR "${file} needs MPI's C++ bindings: ${CMAKE_MATCH_0}")
  endif()
endforeach()
separate_arguments(launch UNIX_COMMAND "${LAUNCH}")
execute_process(COMMAND ${launch} "${PROGRAM}" OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
if(NOT printed MATCHES "the sum is 1\n")
  message(FATAL_ERROR "it printed: ${printed}")
endif()
