/* The one library: kernels for several instruction sets, of which it runs those the CPU has. */

#define _DEFAULT_SOURCE /* for syscall */
#include "kernels.h"

#define EXPORT __attribute__((visibility("default")))

#if defined(__aarch64__)
#include <sys/auxv.h>
extern const kernel_table elmore_neon, elmore_dotprod;
static const kernel_table *select_kernels(void) {
    return getauxval(AT_HWCAP) >> 20 & 1 ? &elmore_dotprod : &elmore_neon;
}
#elif defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
extern const kernel_table elmore_avx2, elmore_avx512, elmore_vnni;
extern const kernel_table elmore_amx __attribute__((weak)); /* older compilers do not know the matrix unit */

/* Whether the CPU has AMX with int8, and Linux gives its registers to this process: it must be asked. */
static int has_tiles(void) {
#if defined(__linux__)
    enum { TILES_AND_INT8 = 3 << 24, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILES_AND_INT8) == TILES_AND_INT8 &&
           !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
#else
    return 0;
#endif
}

static const kernel_table *find_kernels(void) {
    __builtin_cpu_init();
#define HAS(feature) __builtin_cpu_supports(feature)
    if (HAS("avx512f") && HAS("avx512bw") && HAS("avx512vl") && HAS("avx512dq")) {
        if (!HAS("avx512vnni")) return &elmore_avx512;
        return &elmore_amx && has_tiles() ? &elmore_amx : &elmore_vnni;
    }
    return HAS("avx2") && HAS("fma") ? &elmore_avx2 : 0;
}

static const kernel_table *select_kernels(void) {
    static _Atomic(const kernel_table *) found;
    if (!found) found = find_kernels();
    return found;
}
#elif defined(__wasm_simd128__)
extern const kernel_table elmore_simd128;
static const kernel_table *select_kernels(void) { return &elmore_simd128; }
#else
static const kernel_table *select_kernels(void) { return 0; }
#endif

/* The sizes of the structures, in the order of kernels.h: Python compares them with its own. */
EXPORT int64_t elmore_struct_size(int64_t number) {
    const int64_t sizes[] = {sizeof(matrix),       sizeof(product),   sizeof(lstm_call),  sizeof(char_cnn_call),
                             sizeof(highway_call), sizeof(tanh_call), sizeof(log_sum_call)};
    return sizes[number];
}

EXPORT int64_t elmore_panel_rows(void) { /* 0: no kernels for this CPU */
    const kernel_table *table = select_kernels();
    return table ? table->panel_rows : 0;
}
EXPORT int64_t elmore_has_int8_dot(void) { return select_kernels()->has_int8_dot; }
EXPORT int64_t elmore_has_matrix_unit(void) { return select_kernels()->has_matrix_unit; }
EXPORT int64_t elmore_u8_offset(void) { return select_kernels()->u8_offset; }
EXPORT int64_t elmore_multiply(const product *call) { return select_kernels()->multiply(call); }
EXPORT int64_t elmore_run_lstm(const lstm_call *layers, int64_t num_layers) {
    return select_kernels()->run_lstm(layers, num_layers);
}
EXPORT int64_t elmore_run_char_cnn(const char_cnn_call *call) {
    return select_kernels()->run_char_cnn(call);
}
EXPORT void elmore_run_highway(const highway_call *call) { select_kernels()->run_highway(call); }
EXPORT void elmore_run_tanh(const tanh_call *call) { select_kernels()->run_tanh(call); }
EXPORT void elmore_log_sum_exp(const log_sum_call *call) { select_kernels()->log_sum_exp(call); }
