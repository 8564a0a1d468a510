# The package: `find_package(rankcast)` works from an install tree and from this build tree.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(rankcast_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/rankcast")

install(TARGETS rankcast EXPORT rankcastTargets FILE_SET HEADERS)
install(EXPORT rankcastTargets NAMESPACE rankcast:: DESTINATION "${rankcast_package_dir}")
export(EXPORT rankcastTargets NAMESPACE rankcast::
  FILE "${PROJECT_BINARY_DIR}/rankcastTargets.cmake")

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
