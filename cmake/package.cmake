# `cpack` in the build folder makes headrace_VERSION_ARCHITECTURE.deb. Its dependencies are those that
# dpkg-shlibdeps finds in the binaries.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME headrace)
set(CPACK_PACKAGE_CONTACT "the headrace authors <headrace@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "serves large language models from C")
set(CPACK_PACKAGE_DESCRIPTION
"One binary loads a Hugging Face or GGUF checkpoint, compiles every program it
can need in under a second, and answers OpenAI-compatible requests. With the
embedding library, its header and manual pages.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/packaging/triggers)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# What only a package has: where Debian looks for the terms.
install(FILES packaging/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
include(CPack)
