/* What bindgen and the C shim read. The features of the crate define the macros. */
#include <infiniband/verbs.h>
#ifdef IBV_SYS_MLX5
#include <infiniband/mlx5dv.h>
#endif
#ifdef IBV_SYS_RDMACM
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#endif
