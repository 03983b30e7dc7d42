# Toolchain: 64-bit Arm from a Debian machine of another kind. The compiler is Debian's; libraries
# are what tools/setup.sh aarch64 unpacks into .cache/aarch64, and qemu-user runs what is built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

get_filename_component(HR_AARCH64 ${CMAKE_CURRENT_LIST_DIR}/../.cache/aarch64 ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${HR_AARCH64} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${HR_AARCH64}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${HR_AARCH64})
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_CFLAGS} 1) # /usr/include below the root above is not the system's
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_LIBS} 1)
set(CMAKE_C_FLAGS_INIT "-isystem ${HR_AARCH64}/usr/include/aarch64-linux-gnu")
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${HR_AARCH64}/usr/lib/aarch64-linux-gnu)
set(CMAKE_BUILD_RPATH ${HR_AARCH64}/usr/lib/aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
