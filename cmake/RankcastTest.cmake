# Tests of rankcast: one GoogleTest program each, found by ctest one by one.
find_package(GTest REQUIRED)
include(GoogleTest)

# rankcast_add_test(NAME <name> LABELS <label>... SOURCES <file>...
#                   [LIBRARIES <target>...] [TIMEOUT <seconds>] [RUN_SERIAL] [OPTIMIZED])
#
# Builds <name> and registers its tests as `<name>.<suite>.<test>`. LABELS are of unit, conformance,
# objects, model and cases; the target `<label>_tests` builds every program that carries the label. TIMEOUT
# is for each test by itself, 120 s unless given. RUN_SERIAL: no other test beside it, for those
# that measure time or need every core. Tests are built with -O1, which halves their compile time;
# OPTIMIZED: with the build type's own level, for those that compute for long.
function(rankcast_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "RUN_SERIAL;OPTIMIZED" "NAME;TIMEOUT" "LABELS;SOURCES;LIBRARIES")
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

  add_executable(${arg_NAME} ${arg_SOURCES})
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${arg_NAME} PRIVATE
    rankcast::rankcast rankcast_warnings GTest::gtest_main ${arg_LIBRARIES})
  target_compile_definitions(${arg_NAME} PRIVATE
    "RANKCAST_REFERENCE_FOLDER=\"${PROJECT_SOURCE_DIR}/tests/reference\"")
  if(NOT arg_OPTIMIZED)
    target_compile_options(${arg_NAME} PRIVATE "$<$<CONFIG:Release>:-O1>")
  endif()
  rankcast_label_target(${arg_NAME} ${arg_LABELS})

  set(properties TIMEOUT ${arg_TIMEOUT})
  if(arg_RUN_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${arg_NAME}
    TEST_PREFIX ${arg_NAME}.
    TEST_LIST ${arg_NAME}_found
    DISCOVERY_TIMEOUT 120
    PROPERTIES ${properties})
  # gtest_discover_tests takes lists apart on their way, so several labels are set when ctest reads
  # what was found; nothing was if the program has not been built.
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}_labels.cmake")
  file(WRITE "${labels_file}"
    "if(${arg_NAME}_found)\n"
    "  set_tests_properties(\${${arg_NAME}_found} PROPERTIES LABELS \"${arg_LABELS}\")\n"
    "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
endfunction()

# Makes <target> part of `<label>_tests` for each label.
function(rankcast_label_target target)
  foreach(label IN LISTS ARGN)
    if(NOT TARGET ${label}_tests)
      add_custom_target(${label}_tests)
    endif()
    add_dependencies(${label}_tests ${target})
  endforeach()
endfunction()
