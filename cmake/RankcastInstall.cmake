# The package: `find_package(rankcast)` works from an install tree and from this build tree.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(rankcast_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/rankcast")

install(TARGETS rankcast EXPORT rankcastTargets FILE_SET HEADERS)
install(EXPORT rankcastTargets NAMESPACE rankcast:: DESTINATION "${rankcast_package_dir}")
export(EXPORT rankcastTargets NAMESPACE rankcast::
  FILE "${PROJECT_BINARY_DIR}/rankcastTargets.cmake")

# What the package looks for when it is found: rankcast::<component> exists if that is there.
get_property(rankcast_components GLOBAL PROPERTY RANKCAST_COMPONENTS)
get_property(rankcast_absent GLOBAL PROPERTY RANKCAST_ABSENT)
set(rankcast_packages "")
foreach(component IN LISTS rankcast_components)
  install(TARGETS rankcast_${component} EXPORT rankcast_${component}Targets FILE_SET HEADERS)
  install(EXPORT rankcast_${component}Targets NAMESPACE rankcast::
    DESTINATION "${rankcast_package_dir}")
  export(EXPORT rankcast_${component}Targets NAMESPACE rankcast::
    FILE "${PROJECT_BINARY_DIR}/rankcast_${component}Targets.cmake")
  get_property(package GLOBAL PROPERTY RANKCAST_${component}_PACKAGE)
  string(APPEND rankcast_packages "rankcast_component(${component} ${package})\n")
endforeach()
foreach(component IN LISTS rankcast_absent)
  string(APPEND rankcast_packages "rankcast_component(${component})\n")
endforeach()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/rankcastConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/rankcastConfig.cmake"
  INSTALL_DESTINATION "${rankcast_package_dir}"
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break its callers. Headers have no word size.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/rankcastConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${PROJECT_BINARY_DIR}/rankcastConfig.cmake"
  "${PROJECT_BINARY_DIR}/rankcastConfigVersion.cmake"
  DESTINATION "${rankcast_package_dir}")
