# C56: configures, builds and runs tests/build/mpi_consumer; then without an MPI, which has to be
# said by name when it is configured.
#   cmake -D WAY=install_tree|build_tree|subdirectory -D SOURCE_DIR=... -D BINARY_DIR=...
#     -D WORK_DIR=... -D CXX=... -D CXX_FLAGS=... -D MPI_CXX=... -D LAUNCH="mpiexec -n 2"
#     -P consume_mpi.cmake
file(REMOVE_RECURSE "${WORK_DIR}")
if(WAY STREQUAL "install_tree")
  execute_process(COMMAND ${CMAKE_COMMAND} --install "${BINARY_DIR}" --prefix "${WORK_DIR}/prefix"
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  set(where -D CMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
elseif(WAY STREQUAL "build_tree")
  set(where -D rankcast_DIR=${BINARY_DIR})
else()
  set(where -D RANKCAST_SOURCE=${SOURCE_DIR})
endif()
set(configure ${CMAKE_COMMAND} -S "${SOURCE_DIR}/tests/build/mpi_consumer"
  -D CMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")

execute_process(COMMAND ${configure} -B "${WORK_DIR}/build" ${where}
  -D MPI_CXX_COMPILER=${MPI_CXX} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK_DIR}/build" COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(launch UNIX_COMMAND "${LAUNCH}")
execute_process(COMMAND ${launch} "${WORK_DIR}/build/consumer" OUTPUT_VARIABLE printed
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT printed MATCHES "the sum is 3\n")
  message(FATAL_ERROR "the consumer printed: ${printed}")
endif()

# expect_refusal(<pattern> <argument of cmake>...)
function(expect_refusal pattern)
  execute_process(COMMAND ${configure} -B "${WORK_DIR}/without" ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(result EQUAL 0 OR NOT said MATCHES "${pattern}")
    message(FATAL_ERROR "without an MPI it was configured with ${result}: ${said}")
  endif()
  file(REMOVE_RECURSE "${WORK_DIR}/without")
endfunction()

if(WAY STREQUAL "subdirectory")
  expect_refusal("rankcast::mpi" ${where} -D CMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
else()
  expect_refusal("rankcast's component 'mpi' needs MPI, which was not found"
    ${where} -D CMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
endif()

# A package whose maker had no MPI: it has no such component, whatever its user has.
if(WAY STREQUAL "build_tree")
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${SOURCE_DIR}" -B "${WORK_DIR}/package"
    -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_DISABLE_FIND_PACKAGE_MPI=ON
    -D RANKCAST_BUILD_TESTS=OFF -D RANKCAST_BUILD_EXAMPLES=OFF
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  expect_refusal("rankcast's component 'mpi' was left out of this package"
    -D rankcast_DIR=${WORK_DIR}/package -D MPI_CXX_COMPILER=${MPI_CXX})
endif()
