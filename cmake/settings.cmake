# Compiler settings of the whole tree, as the interface target tri_settings.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Headers cost more than the code behind them. Where no cache keeps each file's result it pays to
# compile the files of a room several at a time, and tests with less optimisation.
find_program(TRI_CCACHE ccache)
set(unity ON)
if(TRI_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TRI_CCACHE})
  set(unity OFF)
endif()
option(TRI_UNITY "Compile the files of a room together" ${unity})
set(CMAKE_UNITY_BUILD ${TRI_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(hwy REQUIRED)

add_library(tri_settings INTERFACE)
target_include_directories(tri_settings INTERFACE ${PROJECT_SOURCE_DIR}/include
                                                  ${PROJECT_SOURCE_DIR}/src)
target_compile_options(tri_settings INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Werror
  # clang counts signs among conversions, gcc does not: both shall say the same.
  -Wno-sign-conversion
  # FMA only where it is written: otherwise SIMD targets differ in their last bit.
  -ffp-contract=off)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # The baseline is Highway's SSE4 target, so that no scalar copy of each kernel is built beside it.
  target_compile_options(tri_settings INTERFACE -msse4.2 -maes -mpclmul)
  set(disabled "(HWY_SSSE3|HWY_AVX3_DL)")
  file(STRINGS /proc/cpuinfo has_avx512 REGEX " avx512vl " LIMIT_COUNT 1)
  if(TRI_FEW_TARGETS AND NOT has_avx512)
    set(disabled "(HWY_SSSE3|HWY_AVX3_DL|HWY_AVX3)")
  endif()
  target_compile_definitions(tri_settings INTERFACE "HWY_DISABLED_TARGETS=${disabled}")
  file(STRINGS /proc/cpuinfo has_avx2 REGEX " avx2 " LIMIT_COUNT 1)
  if(TRI_ONE_TARGET AND has_avx2)
    target_compile_options(tri_settings INTERFACE -mavx2 -mfma -mf16c -mbmi -mbmi2)
  endif()
endif()
if(TRI_ONE_TARGET)
  target_compile_definitions(tri_settings INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()
if(TRI_CHECKS)
  target_compile_definitions(tri_settings INTERFACE TRI_CHECKS=1)
endif()
# Register tiles are arrays of vectors: only -O3 unrolls their loops and keeps them in registers.
set(TRI_KERNEL_OPTIONS -O3)
if(TRI_SANITIZE)
  # Kernels are many instances of inlined code, so checks of every access are dear there: addresses are
  # checked by calls, and what a wrong pointer does is left to AddressSanitizer alone.
  set(TRI_KERNEL_OPTIONS -O1)
  if(TRI_SANITIZE MATCHES undefined)
    list(APPEND TRI_KERNEL_OPTIONS -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  if(TRI_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND TRI_KERNEL_OPTIONS --param=asan-instrumentation-with-call-threshold=0)
  endif()
  target_compile_options(tri_settings INTERFACE -fsanitize=${TRI_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(tri_settings INTERFACE -fsanitize=${TRI_SANITIZE})
endif()
target_link_libraries(tri_settings INTERFACE Threads::Threads fmt::fmt)
