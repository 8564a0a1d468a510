# What rankcast's own programs are compiled with. Never exported: whoever includes rankcast chooses
# for themselves, and the headers stay clean under all of these.
add_library(rankcast_warnings INTERFACE)
target_compile_options(rankcast_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Werror)
