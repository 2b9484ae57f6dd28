# What `make install` leaves behind: the libraries, the one object file, the headers, the command, the documents, and the
# two ways by which other builds find them (pkg-config and find_package).  The libraries that benchmarks alone load are
# a component of their own: `cmake --install BUILD --component bench`.

include(CMakePackageConfigHelpers)
set(CPUSLAB_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/cpuslab)
set(CPUSLAB_OBJECT_FILE ${CMAKE_INSTALL_LIBDIR}/cpuslab/cpuslab.o)

install(
	TARGETS cpuslab cpuslab_static cpuslab_caches cpuslab_locks
	EXPORT cpuslabTargets
	LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
	ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_BINARY_DIR}/cpuslab.o DESTINATION ${CMAKE_INSTALL_LIBDIR}/cpuslab)
install(DIRECTORY include/cpuslab DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# linux/slab.h and its neighbours: a folder that only ported kernel sources have in their include path.
install(DIRECTORY include/kernel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cpuslab)
install(EXPORT cpuslabTargets NAMESPACE cpuslab:: DESTINATION ${CPUSLAB_CONFIG_DIR})
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
file(GLOB CPUSLAB_MAN_PAGES CONFIGURE_DEPENDS docs/man/*.[137])
foreach(page ${CPUSLAB_MAN_PAGES})
	string(REGEX REPLACE ".*\\." "" section ${page})
	install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
# As they lie in the source tree, for README.md has links to them.  Without folders in which there would be nothing: man
# pages have their own, and plots stay in the source tree.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md"
	PATTERN man EXCLUDE REGEX "/benchmarks/[0-9]" EXCLUDE)
install(FILES docs/benchmarks/programs.png DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs/benchmarks) # in README.md
install(FILES bindings/cxx.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/bindings)
foreach(language python rust)
	install(FILES bindings/${language}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/bindings/${language})
endforeach()

# Paths relative to the prefix where they can be, so that an installed tree may be moved.
configure_package_config_file(
	${CMAKE_CURRENT_LIST_DIR}/cpuslabConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/cpuslabConfig.cmake
	INSTALL_DESTINATION ${CPUSLAB_CONFIG_DIR}
	PATH_VARS CPUSLAB_OBJECT_FILE)
write_basic_package_version_file(
	${PROJECT_BINARY_DIR}/cmake/cpuslabConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(
	FILES ${PROJECT_BINARY_DIR}/cmake/cpuslabConfig.cmake ${PROJECT_BINARY_DIR}/cmake/cpuslabConfigVersion.cmake
	DESTINATION ${CPUSLAB_CONFIG_DIR})

# The prefix is known only when installing (`cmake --install --prefix`), so the file is written then.
foreach(kind LIBDIR INCLUDEDIR)
	if(IS_ABSOLUTE ${CMAKE_INSTALL_${kind}})
		set(CPUSLAB_PC_${kind} ${CMAKE_INSTALL_${kind}})
	else()
		set(CPUSLAB_PC_${kind} "\${prefix}/${CMAKE_INSTALL_${kind}}")
	endif()
endforeach()
foreach(name CPUSLAB_PC_LIBDIR CPUSLAB_PC_INCLUDEDIR PROJECT_VERSION PROJECT_VERSION_MAJOR)
	install(CODE "set(${name} [==[${${name}}]==])")
endforeach()
foreach(file cpuslab cpuslab-caches cpuslab-locks)
	install(
		CODE "
	configure_file([==[${CMAKE_CURRENT_LIST_DIR}/${file}.pc.in]==] [==[${PROJECT_BINARY_DIR}/${file}.pc]==] @ONLY)
	file(INSTALL [==[${PROJECT_BINARY_DIR}/${file}.pc]==] DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig\")
")
endforeach()
