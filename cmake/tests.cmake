# A C test is one file test_<what>.c under tests/{unit,kernels,conformance}: one cmocka program each.
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
if(NOT CMOCKA_FOUND)
    message(STATUS "cmocka is missing: C tests are not built (apt install libcmocka-dev)")
    return()
endif()
# One op, alone, on any backend: for the conformance tests and for oracles in NumPy.
add_library(op_case OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/conformance/op_case.c
            ${CMAKE_SOURCE_DIR}/tests/conformance/ops_data.c)
target_include_directories(op_case PUBLIC ${CMAKE_SOURCE_DIR}/tests)
add_executable(op_runner EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/conformance/op_runner.c)
target_link_libraries(op_runner PRIVATE op_case headrace_static)
# The whole sampler, alone, likewise.
add_library(sampler_case OBJECT EXCLUDE_FROM_ALL
            ${CMAKE_SOURCE_DIR}/tests/conformance/sampler_case.c)
target_include_directories(sampler_case PUBLIC ${CMAKE_SOURCE_DIR}/tests)
add_executable(sampler_runner EXCLUDE_FROM_ALL
               ${CMAKE_SOURCE_DIR}/tests/conformance/sampler_runner.c)
target_link_libraries(sampler_runner PRIVATE sampler_case op_case headrace_static)
# Templates, alone.
add_executable(render_runner EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/e2e/render_runner.c)
target_link_libraries(render_runner PRIVATE headrace_static)
list(APPEND HR_C_TESTS op_runner sampler_runner render_runner)
foreach(kind unit kernels conformance)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${kind}/test_*.c)
    foreach(file ${files})
        get_filename_component(name ${file} NAME_WE)
        add_executable(${name} EXCLUDE_FROM_ALL ${file})
        target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
        target_link_libraries(${name} PRIVATE headrace_net headrace_static PkgConfig::CMOCKA)
        target_compile_definitions(${name} PRIVATE HR_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
        if(kind MATCHES "conformance|kernels")
            target_link_libraries(${name} PRIVATE op_case sampler_case)
        endif()
        add_test(NAME ${kind}/${name} COMMAND ${name})
        list(APPEND HR_C_TESTS ${name})
    endforeach()
endforeach()
add_custom_target(c_tests DEPENDS ${HR_C_TESTS})
