# Configures, builds and runs tests/build/consumer against rankcast, found in one of three ways.
#   cmake -D WAY=install_tree|build_tree|subdirectory -D SOURCE_DIR=... -D BINARY_DIR=...
#     -D WORK_DIR=... -D VERSION=... -D CXX=... -D CXX_FLAGS=... -D COMPONENTS=a,b -P consume.cmake
string(REPLACE "," ";" components "${COMPONENTS}")
file(REMOVE_RECURSE "${WORK_DIR}")
if(WAY STREQUAL "install_tree")
  execute_process(COMMAND ${CMAKE_COMMAND} --install "${BINARY_DIR}" --prefix "${WORK_DIR}/prefix"
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  # The package may be moved, and must not point back to where it was built.
  file(RENAME "${WORK_DIR}/prefix" "${WORK_DIR}/moved")
  file(GLOB_RECURSE package "${WORK_DIR}/moved/*.cmake")
  foreach(file IN LISTS package)
    file(READ "${file}" text)
    string(FIND "${text}" "${SOURCE_DIR}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} names the source folder")
    endif()
  endforeach()
  set(where -D CMAKE_PREFIX_PATH=${WORK_DIR}/moved)
elseif(WAY STREQUAL "build_tree")
  set(where -D rankcast_DIR=${BINARY_DIR})
else()
  set(where -D RANKCAST_SOURCE=${SOURCE_DIR})
endif()

execute_process(COMMAND ${CMAKE_COMMAND} -S "${SOURCE_DIR}/tests/build/consumer"
  -B "${WORK_DIR}/build" ${where} -D WANTED_VERSION=${VERSION}
  "-DWANTED_COMPONENTS=${components}"
  -D CMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}"
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK_DIR}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${WORK_DIR}/build/consumer" OUTPUT_VARIABLE printed
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT printed STREQUAL "rankcast ${VERSION}: the sum is 6\n")
  message(FATAL_ERROR "the consumer printed: ${printed}")
endif()
foreach(component IN LISTS components)
  execute_process(COMMAND "${WORK_DIR}/build/${component}_consumer" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
