# What `cmake --install` puts where: the command (its web page is inside), the libraries, the one
# public header, a pkg-config file that finds its folder by itself, and manual pages, which the
# command just built writes from its own tables.
include(GNUInstallDirs)
install(TARGETS headrace headrace_shared headrace_static
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/headrace/headrace.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/headrace)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.c")

file(RELATIVE_PATH HR_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" HR_PC_PREFIX "${HR_PC_PREFIX}")
configure_file(packaging/headrace.pc.in generated/headrace.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/headrace.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# A build for another machine runs its command through an emulator, or ships no pages.
set(man ${CMAKE_BINARY_DIR}/generated/man)
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
    add_custom_command(OUTPUT ${man}/headrace.1.gz
                       COMMAND ${CMAKE_COMMAND} -E rm -rf ${man}
                       COMMAND headrace help --man-pages ${man}
                       COMMAND sh -c "gzip -9n ${man}/*.1"
                       DEPENDS headrace VERBATIM)
    add_custom_target(manual ALL DEPENDS ${man}/headrace.1.gz)
    install(DIRECTORY ${man}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
            FILES_MATCHING PATTERN "*.1.gz")
endif()

# systemd's units, which name the command where a package puts it.
file(GLOB units CONFIGURE_DEPENDS packaging/*.service packaging/*.socket)
install(FILES ${units} DESTINATION lib/systemd/system)
