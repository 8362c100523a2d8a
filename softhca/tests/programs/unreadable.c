/* Two processes: one sends a long message from memory that is gone. Prints the status of the send. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s\n", __LINE__, #x); exit(1); } } while (0)
#define LEN 65536

struct where { uint16_t lid; uint32_t qpn; };

int main(void)
{
	int s[2];
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	pid_t child = fork();
	int peer = s[child != 0];
	close(s[child == 0]);
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	CHECK(ctx);
	struct ibv_port_attr port;
	CHECK(!ibv_query_port(ctx, 1, &port));
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr q = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &q);
	char *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, LEN, IBV_ACCESS_LOCAL_WRITE);
	CHECK(qp && mr);
	struct where own = { port.lid, qp->qp_num }, other;
	CHECK(write(peer, &own, sizeof own) == sizeof own && read(peer, &other, sizeof other) == sizeof other);

	struct ibv_qp_attr i = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &i, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct ibv_qp_attr r = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other.qpn,
				 .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				 .ah_attr = { .dlid = other.lid, .port_num = 1 } };
	CHECK(!ibv_modify_qp(qp, &r, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr t = { .qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 2, .rnr_retry = 7,
				 .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &t, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));

	struct ibv_sge g = { (uintptr_t)mem, LEN, mr->lkey };
	char c = 0;
	if (!child) {
		struct ibv_recv_wr rw = { .wr_id = 1, .sg_list = &g, .num_sge = 1 }, *bad;
		CHECK(!ibv_post_recv(qp, &rw, &bad) && write(peer, &c, 1) == 1);
		/* The device's thread serves us until the sender is done. */
		CHECK(read(peer, &c, 1) == 1);
		return 0;
	}
	CHECK(read(peer, &c, 1) == 1);
	munmap(mem, LEN);
	struct ibv_send_wr w = { .wr_id = 2, .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!ibv_post_send(qp, &w, &bad));
	struct ibv_wc wc;
	for (int n = 0; n < 5000 && !ibv_poll_cq(cq, 1, &wc); n++) {
		usleep(1000);
		wc.status = IBV_WC_SUCCESS;
	}
	printf("%s\n", ibv_wc_status_str(wc.status));
	CHECK(write(peer, &c, 1) == 1);
	return 0;
}
