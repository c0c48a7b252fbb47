// C = A·Bᵀ in bf16 by CUTLASS's collective builder. Macros choose what is built:
// ARCH, TILE_M, TILE_N, TILE_K, CLUSTER_M, CLUSTER_N, MAINLOOP, EPILOGUE, SCHEDULER.
#include <cuda_bf16.h>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

using namespace cute;
using Element = cutlass::bfloat16_t;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
using BlockTile = Shape<Int<TILE_M>, Int<TILE_N>, Int<TILE_K>>;
using BlockCluster = Shape<Int<CLUSTER_M>, Int<CLUSTER_N>, _1>;

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    ARCH, cutlass::arch::OpClassTensorOp, BlockTile, BlockCluster, cutlass::epilogue::collective::EpilogueTileAuto,
    float, float, void, RowMajor, 8, Element, RowMajor, 8, EPILOGUE>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    ARCH, cutlass::arch::OpClassTensorOp, Element, RowMajor, 8, Element, ColumnMajor, 8, float, BlockTile,
    BlockCluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    MAINLOOP>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue, SCHEDULER>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

namespace {

typename Gemm::Arguments arguments(const void* a, const void* b, void* c, int m, int n, int k) {
    auto stride_a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, make_shape(m, k, 1));
    auto stride_b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, make_shape(n, k, 1));
    auto stride_d = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, make_shape(m, n, 1));
    cutlass::KernelHardwareInfo info;
    info.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(0);
    return {cutlass::gemm::GemmUniversalMode::kGemm,
            {m, n, k, 1},
            {static_cast<const Element*>(a), stride_a, static_cast<const Element*>(b), stride_b},
            {{1.0f, 0.0f}, nullptr, {}, static_cast<Element*>(c), stride_d},
            info};
}

}  // namespace

extern "C" size_t workspace_bytes(int M, int N, int K) {
    return Gemm::get_workspace_size(arguments(nullptr, nullptr, nullptr, M, N, K));
}

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    auto given = arguments(A, B, C, M, N, K);
    Gemm gemm;
    if (gemm.can_implement(given) != cutlass::Status::kSuccess) return 1;
    if (gemm.initialize(given, workspace, stream) != cutlass::Status::kSuccess) return 2;
    return gemm.run(stream) == cutlass::Status::kSuccess ? 0 : 3;
}
