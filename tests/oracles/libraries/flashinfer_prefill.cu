// Attention forward of one batch in bf16, D = 128, by FlashInfer's Hopper kernel. Macro: MASK (kNone or kCausal).
#include <cmath>

#include <cuda_bf16.h>
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

using Element = cutlass::bfloat16_t;
using Params = flashinfer::SinglePrefillParams<Element, Element, Element, int32_t>;

extern "C" int launch(const __nv_bfloat16* Q, const __nv_bfloat16* K, const __nv_bfloat16* V, __nv_bfloat16* O,
                      float* LSE, int B, int H, int S, int D, void* workspace, cudaStream_t stream) {
    if (B != 1 || D != 128) return 1;
    Params params = {};
    params.q_ptr = reinterpret_cast<Element*>(const_cast<__nv_bfloat16*>(Q));
    params.k_ptr = reinterpret_cast<Element*>(const_cast<__nv_bfloat16*>(K));
    params.v_ptr = reinterpret_cast<Element*>(const_cast<__nv_bfloat16*>(V));
    params.o_ptr = reinterpret_cast<Element*>(O);
    params.additional_params.sm_scale = 1.0f / std::sqrt(static_cast<float>(D));
    params.q_stride_n = params.k_stride_n = params.v_stride_n = params.o_stride_n = D;
    params.q_stride_h = params.k_stride_h = params.v_stride_h = params.o_stride_h = static_cast<int64_t>(S) * D;
    params.qo_len = params.kv_len = S;
    params.num_qo_heads = params.num_kv_heads = H;
    params.group_size = 1;
    params.window_left = -1;
    params.causal = flashinfer::MaskMode::MASK == flashinfer::MaskMode::kCausal;
    return flashinfer::SinglePrefillWithKVCacheDispatched<128, 128, flashinfer::MaskMode::MASK, false,
                                                          flashinfer::StandardAttention>(params, stream);
}
