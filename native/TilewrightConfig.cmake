# find_package(Tilewright): the targets Tilewright::runtime (shared) and Tilewright::runtime_static
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/TilewrightTargets.cmake)
