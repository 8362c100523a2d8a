/* What the programs here have in common: one end of an RC connection. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s\n", __LINE__, #x); exit(1); } } while (0)
#define END_LEN 65536

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *mem;
	uint16_t lid;
};

struct where { uint16_t lid; uint32_t qpn; uint32_t rkey; uint64_t addr; };

static inline struct end end_on(struct ibv_context *ctx)
{
	struct end e = { .ctx = ctx };
	struct ibv_port_attr port;
	CHECK(ctx && !ibv_query_port(ctx, 1, &port));
	e.lid = port.lid;
	CHECK((e.pd = ibv_alloc_pd(ctx)) && (e.channel = ibv_create_comp_channel(ctx)));
	CHECK((e.cq = ibv_create_cq(ctx, 64, NULL, e.channel, 0)));
	struct ibv_qp_init_attr q = { .send_cq = e.cq, .recv_cq = e.cq, .qp_type = IBV_QPT_RC,
				      .cap = { 32, 32, 1, 1, 0 } };
	CHECK((e.qp = ibv_create_qp(e.pd, &q)));
	CHECK(!posix_memalign((void **)&e.mem, 4096, END_LEN));
	memset(e.mem, 0, END_LEN);
	CHECK((e.mr = ibv_reg_mr(e.pd, e.mem, END_LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				 IBV_ACCESS_REMOTE_READ)));
	return e;
}

static inline struct end end_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct end e = end_on(ibv_open_device(list[0]));
	ibv_free_device_list(list);
	return e;
}

static inline struct where end_where(struct end *e)
{
	return (struct where){ e->lid, e->qp->qp_num, e->mr->rkey, (uintptr_t)e->mem };
}

/* timeout as of ibv_modify_qp: 4096 ns shifted by it. */
static inline void end_connect(struct end *e, struct where to, int timeout, int retries)
{
	struct ibv_qp_attr i = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	CHECK(!ibv_modify_qp(e->qp, &i, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct ibv_qp_attr r = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to.qpn,
				 .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				 .ah_attr = { .dlid = to.lid, .port_num = 1 } };
	CHECK(!ibv_modify_qp(e->qp, &r, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr s = { .qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = retries, .rnr_retry = 7,
				 .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(e->qp, &s, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void end_recv(struct end *e, uint64_t id, uint32_t len)
{
	struct ibv_sge g = { (uintptr_t)e->mem, len, e->mr->lkey };
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = &g, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_recv(e->qp, &w, &bad));
}

static inline void end_post(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t len, struct where to)
{
	struct ibv_sge g = { (uintptr_t)e->mem, len, e->mr->lkey };
	struct ibv_send_wr w = { .wr_id = id, .sg_list = &g, .num_sge = 1, .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = { .remote_addr = to.addr, .rkey = to.rkey } }, *bad;
	CHECK(!ibv_post_send(e->qp, &w, &bad));
}

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* The next completion, for 10 seconds at most. */
static inline struct ibv_wc end_wait(struct end *e)
{
	struct ibv_wc wc;
	for (double until = now() + 10; now() < until;)
		if (ibv_poll_cq(e->cq, 1, &wc) == 1)
			return wc;
	CHECK(!"no completion");
	return wc;
}

/* What the other process says of itself, over a socket. */
static inline struct where end_exchange(struct end *e, int socket)
{
	struct where own = end_where(e), other;
	CHECK(write(socket, &own, sizeof own) == sizeof own && read(socket, &other, sizeof other) == sizeof other);
	return other;
}
