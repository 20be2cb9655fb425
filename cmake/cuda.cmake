# SPDX-License-Identifier: Apache-2.0
# WRING_CUDA: how .cu files are compiled.
#   OFF       not at all
#   ON        by nvcc, for every architecture that the toolkit knows by its major number, and as PTX
#   EMULATED  by the host's C++ compiler against tests/emu, so that every kernel runs without a GPU
# wring_cuda_sources(TARGET FILES...) adds .cu files to a target and links the runtime of either kind.
set(WRING_CUDA OFF CACHE STRING "CUDA kernels: ON, OFF or EMULATED (on the host, for tests)")
set_property(CACHE WRING_CUDA PROPERTY STRINGS OFF ON EMULATED)

if(WRING_CUDA STREQUAL "EMULATED")
    enable_language(CXX)
    set(CMAKE_CXX_STANDARD 17)
    set(CMAKE_CXX_EXTENSIONS OFF)
    file(GLOB emu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/emu/*.cpp)
    add_library(emucuda SHARED ${emu_sources})
    target_include_directories(emucuda PUBLIC ${PROJECT_SOURCE_DIR}/tests/emu)
    target_link_libraries(emucuda PRIVATE wring_flags Threads::Threads)
elseif(WRING_CUDA)
    find_program(WRING_NVCC nvcc HINTS /usr/local/cuda/bin)
    set(CMAKE_CUDA_COMPILER ${WRING_NVCC})
    if(NOT CMAKE_CUDA_ARCHITECTURES)
        set(CMAKE_CUDA_ARCHITECTURES all-major)
    endif()
    set(CMAKE_CUDA_STANDARD 17)
    enable_language(CUDA)
    list(PREPEND CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/keep_log.sh)
    find_package(CUDAToolkit 12 REQUIRED)
elseif(NOT WRING_CUDA STREQUAL "OFF")
    message(FATAL_ERROR "WRING_CUDA is ON, OFF or EMULATED, not '${WRING_CUDA}'")
endif()

# No contraction, IEEE division, subnormals kept: docs/arithmetic.md. Warnings are errors.
function(wring_cuda_sources target)
    target_sources(${target} PRIVATE ${ARGN})
    if(WRING_CUDA STREQUAL "EMULATED")
        set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++;-Wno-unused-function;-Wno-unknown-pragmas")
        target_link_libraries(${target} PRIVATE emucuda)
    else()
        set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS
            "--fmad=false;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra;-Xptxas=-v")
        target_link_libraries(${target} PRIVATE CUDA::cudart_static)
    endif()
endfunction()
