/* A program that knows nothing of softhca: sends to itself over RC and checks what arrived. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s\n", __LINE__, #x); return 1; } } while (0)

static int connect_qp(struct ibv_qp *qp, uint32_t dest, struct ibv_port_attr *port)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct ibv_qp_attr r = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest,
				 .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				 .ah_attr = { .dlid = port->lid, .port_num = 1 } };
	CHECK(!ibv_modify_qp(qp, &r, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr s = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				 .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &s, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	return 0;
}

#ifdef STEPS
/* With the library in manual mode the program makes the device work. */
extern int softhca_step(void) __attribute__((weak));
extern unsigned long long softhca_take_violations(void) __attribute__((weak));
#endif

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	CHECK(ctx);
	struct ibv_port_attr port;
	CHECK(!ibv_query_port(ctx, 1, &port));
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	CHECK(pd && cq);
	static char out[64] = "hello, device", in[64];
	struct ibv_mr *mo = ibv_reg_mr(pd, out, sizeof out, 0);
	struct ibv_mr *mi = ibv_reg_mr(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mo && mi);
	struct ibv_qp_init_attr q = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
				      .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *a = ibv_create_qp(pd, &q), *b = ibv_create_qp(pd, &q);
	CHECK(a && b && !connect_qp(a, b->qp_num, &port) && !connect_qp(b, a->qp_num, &port));
	struct ibv_sge si = { (uintptr_t)in, sizeof in, mi->lkey }, so = { (uintptr_t)out, sizeof out, mo->lkey };
	struct ibv_recv_wr rw = { .wr_id = 1, .sg_list = &si, .num_sge = 1 }, *rbad;
	struct ibv_send_wr sw = { .wr_id = 2, .sg_list = &so, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *sbad;
	CHECK(!ibv_post_recv(b, &rw, &rbad) && !ibv_post_send(a, &sw, &sbad));
#ifdef STEPS
	CHECK(softhca_step && softhca_step() == 1 && softhca_take_violations() == 0);
#endif
	struct ibv_wc wc;
	for (int done = 0; done < 2;)
		if (ibv_poll_cq(cq, 1, &wc) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			done++;
		}
	CHECK(!strcmp(in, out));
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mo) &&
	      !ibv_dereg_mr(mi) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
	ibv_free_device_list(list);
	puts("ok");
	return 0;
}
