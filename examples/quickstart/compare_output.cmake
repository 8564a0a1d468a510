# cmake -D PROGRAM=<executable> -D EXPECTED=<file> -P compare_output.cmake
# Fails unless the program ends well and prints exactly what the file holds.
execute_process(COMMAND "${PROGRAM}" OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
file(READ "${EXPECTED}" wanted)
if(NOT printed STREQUAL wanted)
  message(FATAL_ERROR "${PROGRAM} printed\n${printed}\nwanted, from ${EXPECTED}\n${wanted}")
endif()
