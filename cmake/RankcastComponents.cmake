# Parts of rankcast that need somebody else's library. Each has headers of its own, a target
# `rankcast::<name>`, and is a component of the package; where its library is missing it does not
# exist, and the rest does without.
define_property(GLOBAL PROPERTY RANKCAST_COMPONENTS BRIEF_DOCS "Components whose library was found")
define_property(GLOBAL PROPERTY RANKCAST_ABSENT BRIEF_DOCS "Those whose library was not")

# rankcast_component_headers(<name> <variable> [<pattern>...]): include/rankcast/<name>.hpp, the
# folders <name>/ and transports/<name>/, and what else is named
function(rankcast_component_headers name variable)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/include/rankcast/${name}.hpp"
    "${PROJECT_SOURCE_DIR}/include/rankcast/${name}/*.hpp"
    "${PROJECT_SOURCE_DIR}/include/rankcast/transports/${name}/*.hpp" ${ARGN})
  set(${variable} ${headers} PARENT_SCOPE)
endfunction()

# rankcast_add_component(NAME <name> HEADERS <file>... PACKAGE <argument of find_package>...
#                        LIBRARIES <target>... [DEFINITIONS <name=value>...])
function(rankcast_add_component)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "HEADERS;PACKAGE;LIBRARIES;DEFINITIONS")
  find_package(${arg_PACKAGE} QUIET)
  foreach(library IN LISTS arg_LIBRARIES)
    if(NOT TARGET ${library})
      message(STATUS "rankcast: without ${arg_NAME}, there is no ${library} here")
      set_property(GLOBAL APPEND PROPERTY RANKCAST_ABSENT ${arg_NAME})
      return()
    endif()
  endforeach()
  add_library(rankcast_${arg_NAME} INTERFACE)
  add_library(rankcast::${arg_NAME} ALIAS rankcast_${arg_NAME})
  set_target_properties(rankcast_${arg_NAME} PROPERTIES EXPORT_NAME ${arg_NAME})
  target_link_libraries(rankcast_${arg_NAME} INTERFACE rankcast::rankcast ${arg_LIBRARIES})
  target_compile_definitions(rankcast_${arg_NAME} INTERFACE ${arg_DEFINITIONS})
  target_sources(rankcast_${arg_NAME} INTERFACE
    FILE_SET HEADERS BASE_DIRS include FILES ${arg_HEADERS})
  set_property(GLOBAL APPEND PROPERTY RANKCAST_COMPONENTS ${arg_NAME})
  list(JOIN arg_PACKAGE " " package)
  set_property(GLOBAL PROPERTY RANKCAST_${arg_NAME}_PACKAGE "${package}")
endfunction()
