# Tests of rankcast: one GoogleTest program each, found by ctest one by one.
find_package(GTest REQUIRED)
include(GoogleTest)

# rankcast_add_test(NAME <name> LABELS <label>... SOURCES <file>...
#                   [TRANSPORTS <transport>...] [LIBRARIES <target>...] [TIMEOUT <seconds>]
#                   [RUN_SERIAL] [OPTIMIZED])
#
# Builds <name> and registers its tests as `<name>.<suite>.<test>`. LABELS are of unit, conformance,
# objects, mpi, hosts, model and cases; the target `<label>_tests` builds every program that carries the
# label. TRANSPORTS: the sources are compiled once and linked to the ranks of each transport,
# `threads` unless given; the program of another one is `<name>_<transport>`. TIMEOUT is for each
# test by itself, 120 s unless given. RUN_SERIAL: no other test beside it, for those that measure
# time or need every core. Tests are built with -O1, which halves their compile time; OPTIMIZED:
# with the build type's own level, for those that compute for long.
function(rankcast_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "RUN_SERIAL;OPTIMIZED" "NAME;TIMEOUT"
    "LABELS;SOURCES;TRANSPORTS;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "rankcast_add_test: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  foreach(required NAME LABELS SOURCES)
    if(NOT arg_${required})
      message(FATAL_ERROR "rankcast_add_test(${arg_NAME}): ${required} is missing")
    endif()
  endforeach()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_TRANSPORTS)
    set(arg_TRANSPORTS threads)
  endif()

  add_library(${arg_NAME}_objects OBJECT ${arg_SOURCES})
  target_include_directories(${arg_NAME}_objects PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${arg_NAME}_objects PRIVATE
    rankcast::rankcast rankcast_warnings GTest::gtest ${arg_LIBRARIES})
  target_compile_definitions(${arg_NAME}_objects PRIVATE
    "RANKCAST_REFERENCE_FOLDER=\"${PROJECT_SOURCE_DIR}/tests/reference\"")
  if(NOT arg_OPTIMIZED)
    target_compile_options(${arg_NAME}_objects PRIVATE "$<$<CONFIG:Release>:-O1>")
  endif()

  foreach(transport IN LISTS arg_TRANSPORTS)
    if(NOT TARGET support_${transport})
      continue()  # not on this machine
    endif()
    set(program ${arg_NAME})
    if(NOT transport STREQUAL threads)
      string(APPEND program _${transport})
    endif()
    add_executable(${program} $<TARGET_OBJECTS:${arg_NAME}_objects>)
    target_link_libraries(${program} PRIVATE
      support_${transport} GTest::gtest_main ${arg_LIBRARIES})
    if(transport STREQUAL mpi)
      rankcast_label_target(${program} mpi)
      rankcast_add_mpi_test(${program} 4 "${arg_LABELS};mpi" ${program})
    else()
      rankcast_label_target(${program} ${arg_LABELS})
      rankcast_register_tests(${program})
    endif()
  endforeach()
endfunction()

# rankcast_add_mpi_test(<name> <processes> <labels> <program> [<argument>...]): a program as one
# test, started by the launcher of the MPI it was built with.
function(rankcast_add_mpi_test name processes labels program)
  add_test(NAME ${name}.${processes}_processes
    COMMAND ${MPIEXEC_EXECUTABLE} ${RANKCAST_MPIEXEC_FLAGS} ${MPIEXEC_NUMPROC_FLAG} ${processes}
      $<TARGET_FILE:${program}> ${ARGN})
  set_tests_properties(${name}.${processes}_processes PROPERTIES
    LABELS "${labels}" TIMEOUT 300 PROCESSORS 2)
endfunction()

if(TARGET rankcast::mpi)
  # More processes than cores, perhaps as root: Open MPI has to be told.
  execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version
    OUTPUT_VARIABLE version ERROR_VARIABLE version)
  if(version MATCHES "Open MPI|OpenRTE|PRRTE")
    set(RANKCAST_MPIEXEC_FLAGS --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1)
  endif()
endif()

# Registers the tests of a program one by one, with the arguments of rankcast_add_test.
macro(rankcast_register_tests program)
  set(properties TIMEOUT ${arg_TIMEOUT})
  if(arg_RUN_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${program}
    TEST_PREFIX ${program}.
    TEST_LIST ${program}_found
    DISCOVERY_TIMEOUT 120
    PROPERTIES ${properties})
  # gtest_discover_tests takes lists apart on their way, so several labels are set when ctest reads
  # what was found; nothing was if the program has not been built.
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${program}_labels.cmake")
  file(WRITE "${labels_file}"
    "if(${program}_found)\n"
    "  set_tests_properties(\${${program}_found} PROPERTIES LABELS \"${arg_LABELS}\")\n"
    "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
endmacro()

# Makes <target> part of `<label>_tests` for each label.
function(rankcast_label_target target)
  foreach(label IN LISTS ARGN)
    if(NOT TARGET ${label}_tests)
      add_custom_target(${label}_tests)
    endif()
    add_dependencies(${label}_tests ${target})
  endforeach()
endfunction()
