# Every room is the .c files of its folder; a new file needs no line here.
set(HR_SOURCES "")
foreach(room base graph passes backend ref cpu model sampler text text/jinja engine)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.c)
    list(APPEND HR_SOURCES ${files})
endforeach()
list(APPEND HR_SOURCES ${CMAKE_SOURCE_DIR}/src/cpu/kernels/table.c)

# The PJRT room needs the header of PJRT's C API, which tools/setup.sh pjrt fetches with a plugin
# (63 MB, so that a server on the native backend does without). AUTO builds the room where the header
# is; a build that found none configures itself again when it has come.
set(HR_PJRT AUTO CACHE STRING "Build the PJRT backend: AUTO (where its header is), ON or OFF")
set_property(CACHE HR_PJRT PROPERTY STRINGS AUTO ON OFF)
set(HR_PJRT_INCLUDE ${CMAKE_SOURCE_DIR}/.cache/pjrt/xla_plugins/xla_cpu_pjrt/include
    CACHE PATH "folder of pjrt_c_api.h")
file(GLOB pjrt_header CONFIGURE_DEPENDS ${HR_PJRT_INCLUDE}/pjrt_c_api.h)
if(HR_PJRT STREQUAL "AUTO" AND NOT pjrt_header)
    message(STATUS "PJRT backend: left out, its header is missing (tools/setup.sh pjrt fetches it)")
    set(HR_HAVE_PJRT OFF)
elseif(HR_PJRT STREQUAL "AUTO" OR HR_PJRT)
    set(HR_HAVE_PJRT ON)
else()
    set(HR_HAVE_PJRT OFF)
endif()
if(HR_HAVE_PJRT)
    if(NOT pjrt_header)
        message(FATAL_ERROR "HR_PJRT: pjrt_c_api.h is missing; tools/setup.sh pjrt fetches it")
    endif()
    file(GLOB pjrt_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/pjrt/*.c)
    list(APPEND HR_SOURCES ${pjrt_files})
    include_directories(SYSTEM ${HR_PJRT_INCLUDE})
    add_compile_definitions(HR_HAVE_PJRT=1)
endif()
file(GLOB HR_CLI_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.c)

# Kernels. A family in kernels/family/ is written once on vec.h and compiled per ISA; a file named
# *_<isa>.c in kernels/ is written for that ISA alone. The flags are those of the path, no more.
# An ISA that extends another brings its own files only (table.c).
set(HR_ISA_scalar "")
set(HR_ISA_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(HR_ISA_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx2 -mfma -mf16c
                  -mbmi2 -mprefer-vector-width=512)
set(HR_ISA_avx512_bf16 ${HR_ISA_avx512} -mavx512bf16)
set(HR_ISA_amx ${HR_ISA_avx512} -mamx-tile -mamx-int8 -mamx-bf16)
set(HR_ISA_neon "")
set(HR_ISA_neon_dotprod -march=armv8.2-a+dotprod)
set(HR_ISA_LIST scalar)
set(HR_ISA_EXTENSIONS "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND HR_ISA_LIST avx2 avx512)
    list(APPEND HR_ISA_EXTENSIONS avx512_bf16 amx)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(APPEND HR_ISA_LIST neon)
    list(APPEND HR_ISA_EXTENSIONS neon_dotprod)
endif()
file(GLOB families CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cpu/kernels/family/*.c)
set(HR_KERNEL_OBJECTS "")
foreach(isa ${HR_ISA_LIST} ${HR_ISA_EXTENSIONS})
    file(GLOB own CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cpu/kernels/*_${isa}.c)
    if(isa IN_LIST HR_ISA_LIST)
        list(APPEND own ${families})
    endif()
    if(own)
        add_library(kernels_${isa} OBJECT ${own})
        # -O3 whatever the build's own level: at -O2 gcc leaves a tile's accumulators in memory.
        target_compile_options(kernels_${isa} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O3>
                                                      ${HR_ISA_${isa}})
        target_compile_definitions(kernels_${isa} PRIVATE HR_ISA=${isa} HR_ISA_IS_${isa}=1)
        if(HR_SANITIZE MATCHES "undefined")
            # The linear tiles are one inlined body per format and row count: with a check before
            # every access gcc takes minutes over them. What these four look for on the way to
            # memory, the address sanitizer sees at the memory.
            set_source_files_properties(
                ${CMAKE_SOURCE_DIR}/src/cpu/kernels/linear_${isa}.c PROPERTIES COMPILE_OPTIONS
                "-fno-sanitize=null,alignment,pointer-overflow,object-size")
        endif()
        list(APPEND HR_KERNEL_OBJECTS $<TARGET_OBJECTS:kernels_${isa}>)
    endif()
endforeach()

add_library(headrace_objects OBJECT ${HR_SOURCES})
target_link_libraries(headrace_objects PUBLIC ${HR_LIBS})
add_library(headrace_static STATIC $<TARGET_OBJECTS:headrace_objects> ${HR_KERNEL_OBJECTS})
target_link_libraries(headrace_static PUBLIC ${HR_LIBS})
add_library(headrace_shared SHARED $<TARGET_OBJECTS:headrace_objects> ${HR_KERNEL_OBJECTS})
target_link_libraries(headrace_shared PRIVATE ${HR_LIBS})
set_target_properties(headrace_static headrace_shared PROPERTIES OUTPUT_NAME headrace)
set_target_properties(headrace_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)

# The rooms that speak to the network stay out of the embedding library: the command and the tests
# link them. The page's files become one C file, so that the binary stands alone.
file(GLOB HR_NET_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/server/*.c
     ${CMAKE_SOURCE_DIR}/src/bench/*.c ${CMAKE_SOURCE_DIR}/src/eval/*.c
     ${CMAKE_SOURCE_DIR}/src/convert/*.c)
file(GLOB HR_PAGE CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/server/page/*)
set(page_c ${CMAKE_BINARY_DIR}/generated/page_files.c)
add_custom_command(
    OUTPUT ${page_c}
    COMMAND ${CMAKE_COMMAND} -DOUT=${page_c} "-DFILES=${HR_PAGE}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${HR_PAGE} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
add_library(headrace_net STATIC ${HR_NET_SOURCES} ${page_c})
target_link_libraries(headrace_net PUBLIC headrace_static PkgConfig::LIBEVENT PkgConfig::OPENSSL)

# Only headrace_* leaves the shared library; the rest is ours to change.
set_target_properties(headrace_shared PROPERTIES LINK_FLAGS
                      "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/exports.map")
set_property(TARGET headrace_shared APPEND PROPERTY
             LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/exports.map)

# The embedding examples, against the shared library and nothing but the installed header.
foreach(example hello grammar)
    add_executable(example_${example} examples/${example}.c)
    target_link_libraries(example_${example} PRIVATE headrace_shared)
endforeach()

# The examples of logits processors: shared objects that need the header alone.
foreach(processor trigram bias)
    add_library(logits_processor_${processor} MODULE
                ${CMAKE_SOURCE_DIR}/examples/logits_processor_${processor}.c)
    set_target_properties(logits_processor_${processor} PROPERTIES PREFIX "")
endforeach()
