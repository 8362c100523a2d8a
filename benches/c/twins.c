/* The C twins: what a careful C programmer writes for each measured loop. Fields are set one by one, and only those that
 * a provider reads; so nothing is zeroed. Beside them, named as such, the two other common ways: a designated
 * initialiser, which zeroes the rest of the 128 bytes, and a request that was built before.
 *
 * Each function does so many operations, on arguments that are unknown each time, and returns 0 if all succeeded. */
#include <errno.h>
#include <infiniband/verbs.h>

/* The compiler knows nothing of the value afterwards. */
#define OPAQUE(variable) __asm__ volatile("" : "+r"(variable))

/* As a peer told it: `struct RemoteSlice` of src/mr/remote.rs. */
struct remote {
	uint64_t addr;
	uint32_t length;
	uint32_t rkey;
};

int c_post_write(struct ibv_qp *qp, const struct ibv_sge *data, const struct remote *to, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;

		OPAQUE(qp);
		OPAQUE(data);
		OPAQUE(to);
		sge = *data;
		wr.wr_id = id;
		wr.next = NULL;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr.rdma.remote_addr = to->addr;
		wr.wr.rdma.rkey = to->rkey;
		if (ibv_post_send(qp, &wr, &bad))
			return -1;
	}
	return 0;
}

int c_post_unsignaled(struct ibv_qp *qp, const struct ibv_sge *data, const struct remote *to, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;

		OPAQUE(qp);
		OPAQUE(data);
		OPAQUE(to);
		sge = *data;
		wr.wr_id = id;
		wr.next = NULL;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.send_flags = 0;
		wr.wr.rdma.remote_addr = to->addr;
		wr.wr.rdma.rkey = to->rkey;
		if (ibv_post_send(qp, &wr, &bad))
			return -1;
	}
	return 0;
}

int c_designated_write(struct ibv_qp *qp, const struct ibv_sge *data, const struct remote *to, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		OPAQUE(qp);
		OPAQUE(data);
		OPAQUE(to);
		struct ibv_sge sge = *data;
		struct ibv_send_wr wr = {
			.wr_id = id,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = to->addr, .rkey = to->rkey },
		}, *bad;
		if (ibv_post_send(qp, &wr, &bad))
			return -1;
	}
	return 0;
}

int c_post_send(struct ibv_qp *qp, const struct ibv_sge *data, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;

		OPAQUE(qp);
		OPAQUE(data);
		sge = *data;
		wr.wr_id = id;
		wr.next = NULL;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_SEND;
		wr.send_flags = IBV_SEND_SIGNALED;
		if (ibv_post_send(qp, &wr, &bad))
			return -1;
	}
	return 0;
}

int c_post_send_inline(struct ibv_qp *qp, const void *data, size_t length, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;

		OPAQUE(qp);
		OPAQUE(data);
		OPAQUE(length);
		sge.addr = (uintptr_t)data;
		sge.length = length;
		wr.wr_id = id;
		wr.next = NULL;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_SEND;
		wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
		if (ibv_post_send(qp, &wr, &bad))
			return -1;
	}
	return 0;
}

int c_post_fetch_add(struct ibv_qp *qp, const struct ibv_sge *data, const struct remote *at, uint64_t add, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;

		OPAQUE(qp);
		OPAQUE(data);
		OPAQUE(at);
		OPAQUE(add);
		sge = *data;
		wr.wr_id = id;
		wr.next = NULL;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr.atomic.remote_addr = at->addr;
		wr.wr.atomic.compare_add = add;
		wr.wr.atomic.rkey = at->rkey;
		if (ibv_post_send(qp, &wr, &bad))
			return -1;
	}
	return 0;
}

int c_post_ud_send(struct ibv_qp *qp, const struct ibv_sge *data, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;

		OPAQUE(qp);
		OPAQUE(data);
		OPAQUE(ah);
		OPAQUE(qpn);
		OPAQUE(qkey);
		sge = *data;
		wr.wr_id = id;
		wr.next = NULL;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_SEND;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qpn;
		wr.wr.ud.remote_qkey = qkey;
		if (ibv_post_send(qp, &wr, &bad))
			return -1;
	}
	return 0;
}

/* What c_post_prepared posts. */
void c_prepare_write(struct ibv_send_wr *wr, struct ibv_sge *sge, const struct remote *to)
{
	wr->next = NULL;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->wr.rdma.remote_addr = to->addr;
	wr->wr.rdma.rkey = to->rkey;
}

int c_post_prepared(struct ibv_qp *qp, struct ibv_send_wr *wr, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_send_wr *bad;

		OPAQUE(qp);
		OPAQUE(wr);
		wr->wr_id = id;
		if (ibv_post_send(qp, wr, &bad))
			return -1;
	}
	return 0;
}

int c_write_list_16(struct ibv_qp *qp, const struct ibv_sge *data, const struct remote *to, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_send_wr wr[16], *bad;
		struct ibv_sge sge[16];

		OPAQUE(qp);
		OPAQUE(data);
		OPAQUE(to);
		for (int i = 0; i < 16; i++) {
			sge[i] = *data;
			wr[i].wr_id = id;
			wr[i].next = i < 15 ? &wr[i + 1] : NULL;
			wr[i].sg_list = &sge[i];
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_WRITE;
			wr[i].send_flags = i == 15 ? IBV_SEND_SIGNALED : 0;
			wr[i].wr.rdma.remote_addr = to->addr;
			wr[i].wr.rdma.rkey = to->rkey;
		}
		if (ibv_post_send(qp, wr, &bad))
			return -1;
	}
	return 0;
}

/* Each request with data and destination of its own. */
int c_write_distinct_16(struct ibv_qp *qp, const struct ibv_sge *data, const struct remote *to, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_send_wr wr[16], *bad;
		struct ibv_sge sge[16];

		OPAQUE(qp);
		OPAQUE(data);
		OPAQUE(to);
		for (int i = 0; i < 16; i++) {
			sge[i] = data[i];
			wr[i].wr_id = id;
			wr[i].next = i < 15 ? &wr[i + 1] : NULL;
			wr[i].sg_list = &sge[i];
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_WRITE;
			wr[i].send_flags = i == 15 ? IBV_SEND_SIGNALED : 0;
			wr[i].wr.rdma.remote_addr = to[i].addr;
			wr[i].wr.rdma.rkey = to[i].rkey;
		}
		if (ibv_post_send(qp, wr, &bad))
			return -1;
	}
	return 0;
}

int c_post_recv(struct ibv_qp *qp, const struct ibv_sge *data, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_recv_wr wr, *bad;
		struct ibv_sge sge;

		OPAQUE(qp);
		OPAQUE(data);
		sge = *data;
		wr.wr_id = id;
		wr.next = NULL;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		if (ibv_post_recv(qp, &wr, &bad))
			return -1;
	}
	return 0;
}

int c_recv_list_16(struct ibv_qp *qp, const struct ibv_sge *data, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		struct ibv_recv_wr wr[16], *bad;
		struct ibv_sge sge[16];

		OPAQUE(qp);
		OPAQUE(data);
		for (int i = 0; i < 16; i++) {
			sge[i] = *data;
			wr[i].wr_id = id;
			wr[i].next = i < 15 ? &wr[i + 1] : NULL;
			wr[i].sg_list = &sge[i];
			wr[i].num_sge = 1;
		}
		if (ibv_post_recv(qp, wr, &bad))
			return -1;
	}
	return 0;
}

#define WR_WRITE(name)                                                                                        \
	int name(struct ibv_qp_ex *qp, const struct ibv_sge *data, const struct remote *to, uint64_t operations) \
	{                                                                                                     \
		for (uint64_t id = 0; id < operations; id++) {                                                \
			OPAQUE(qp);                                                                           \
			OPAQUE(data);                                                                         \
			OPAQUE(to);                                                                           \
			ibv_wr_start(qp);                                                                     \
			qp->wr_id = id;                                                                       \
			qp->wr_flags = IBV_SEND_SIGNALED;                                                     \
			ibv_wr_rdma_write(qp, to->rkey, to->addr);                                            \
			ibv_wr_set_sge(qp, data->lkey, data->addr, data->length);                             \
			if (ibv_wr_complete(qp))                                                              \
				return -1;                                                                    \
		}                                                                                             \
		return 0;                                                                                     \
	}

WR_WRITE(c_wr_write)
/* The same, beside data by value. */
WR_WRITE(c_wr_write_value)

int c_wr_send_inline(struct ibv_qp_ex *qp, const void *data, size_t length, uint64_t operations)
{
	for (uint64_t id = 0; id < operations; id++) {
		OPAQUE(qp);
		OPAQUE(data);
		OPAQUE(length);
		ibv_wr_start(qp);
		qp->wr_id = id;
		qp->wr_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
		ibv_wr_send(qp);
		ibv_wr_set_inline_data(qp, (void *)data, length);
		if (ibv_wr_complete(qp))
			return -1;
	}
	return 0;
}

struct request {
	struct ibv_sge data;
	struct remote to;
	uint64_t id;
	uint32_t flags;
};

int c_wr_write_list_16(struct ibv_qp_ex *qp, const struct request *requests, uint64_t operations)
{
	for (uint64_t operation = 0; operation < operations; operation++) {
		OPAQUE(qp);
		OPAQUE(requests);
		ibv_wr_start(qp);
		for (int i = 0; i < 16; i++) {
			const struct request *request = &requests[i];

			qp->wr_id = request->id;
			qp->wr_flags = request->flags;
			ibv_wr_rdma_write(qp, request->to.rkey, request->to.addr);
			ibv_wr_set_sge(qp, request->data.lkey, request->data.addr, request->data.length);
		}
		if (ibv_wr_complete(qp))
			return -1;
	}
	return 0;
}

/* The same without ibv_wr_*. */
int c_untrusted_list_16(struct ibv_qp *qp, const struct request *requests, uint64_t operations)
{
	for (uint64_t operation = 0; operation < operations; operation++) {
		struct ibv_send_wr wr[16], *bad;
		struct ibv_sge sge[16];

		OPAQUE(qp);
		OPAQUE(requests);
		for (int i = 0; i < 16; i++) {
			const struct request *request = &requests[i];

			sge[i] = request->data;
			wr[i].wr_id = request->id;
			wr[i].next = i < 15 ? &wr[i + 1] : NULL;
			wr[i].sg_list = &sge[i];
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_WRITE;
			wr[i].send_flags = request->flags;
			wr[i].wr.rdma.remote_addr = request->to.addr;
			wr[i].wr.rdma.rkey = request->to.rkey;
		}
		if (ibv_post_send(qp, wr, &bad))
			return -1;
	}
	return 0;
}

/* Each poll finds so many completions, all of success; the result is the sum of what is asked of each, or -1. */
#define POLL(name, room, each)                                                      \
	uint64_t name(struct ibv_cq *cq, struct ibv_wc *wcs, uint64_t operations)   \
	{                                                                           \
		uint64_t sum = 0;                                                   \
                                                                                    \
		for (uint64_t operation = 0; operation < operations; operation++) {      \
			int count;                                                  \
                                                                                    \
			OPAQUE(cq);                                                 \
			OPAQUE(wcs);                                                \
			count = ibv_poll_cq(cq, room, wcs);                         \
			if (count < 0)                                              \
				return -1;                                          \
			for (int i = 0; i < count; i++) {                           \
				if (wcs[i].status != IBV_WC_SUCCESS)                \
					return -1;                                  \
				sum += each;                                        \
			}                                                           \
		}                                                                   \
		return sum;                                                         \
	}

POLL(c_poll_1, 1, wcs[i].wr_id)
POLL(c_poll_16, 16, wcs[i].wr_id)
POLL(c_poll_empty, 32, wcs[i].wr_id)
/* Of an extended queue. */
POLL(c_poll_ex_ids_16, 16, wcs[i].wr_id)
/* The same, beside the direct path. */
POLL(c_direct_poll_1, 1, wcs[i].wr_id)
POLL(c_direct_poll_16, 16, wcs[i].wr_id)
/* Of receives one wants to know how long they are. */
POLL(c_direct_poll_recv_16, 16, wcs[i].wr_id + wcs[i].byte_len)
POLL(c_direct_poll_empty, 32, wcs[i].wr_id)
POLL(c_direct_poll_data_16, 16, wcs[i].wr_id)
POLL(c_direct_shared_poll_8, 8, wcs[i].wr_id)

/* The same by an extended queue; what is read of each completion beside id and status is added to `sum`. */
#define POLL_EX(name, room, read)                                               \
	uint64_t name(struct ibv_cq_ex *cq, uint64_t operations)                    \
	{                                                                           \
		uint64_t sum = 0;                                                   \
                                                                                    \
		for (uint64_t operation = 0; operation < operations; operation++) {      \
			struct ibv_poll_cq_attr attr = { 0 };                       \
			int found = 0, result;                                      \
                                                                                    \
			OPAQUE(cq);                                                 \
			result = ibv_start_poll(cq, &attr);                         \
			if (result == ENOENT)                                       \
				continue;                                           \
			if (result)                                                 \
				return -1;                                          \
			do {                                                        \
				if (cq->status != IBV_WC_SUCCESS) {                 \
					ibv_end_poll(cq);                           \
					return -1;                                  \
				}                                                   \
				sum += cq->wr_id;                                   \
				read;                                               \
				if (++found == room)                                \
					break;                                      \
				result = ibv_next_poll(cq);                         \
			} while (!result);                                          \
			ibv_end_poll(cq);                                           \
			if (result && result != ENOENT)                             \
				return -1;                                          \
		}                                                                   \
		return sum;                                                         \
	}

/* Bytes where there are some, and whose they are. */
#define READ_FIELDS                                                             \
	do {                                                                        \
		enum ibv_wc_opcode opcode = ibv_wc_read_opcode(cq);                 \
                                                                                    \
		if (opcode & IBV_WC_RECV || opcode == IBV_WC_RDMA_READ)             \
			sum += ibv_wc_read_byte_len(cq);                            \
		sum += ibv_wc_read_qp_num(cq);                                      \
	} while (0)

POLL_EX(c_poll_ex_1, 1, )
POLL_EX(c_poll_ex_16, 16, )
POLL_EX(c_poll_ex_empty, 32, )
POLL_EX(c_poll_ex_fields_16, 16, READ_FIELDS)

int c_arm(struct ibv_cq *cq, uint64_t operations)
{
	for (uint64_t operation = 0; operation < operations; operation++) {
		OPAQUE(cq);
		if (ibv_req_notify_cq(cq, 0))
			return -1;
	}
	return 0;
}

int c_register(struct ibv_pd *pd, void *memory, size_t length, uint64_t operations)
{
	for (uint64_t operation = 0; operation < operations; operation++) {
		struct ibv_mr *mr;

		OPAQUE(pd);
		OPAQUE(memory);
		OPAQUE(length);
		mr = ibv_reg_mr(pd, memory, length, IBV_ACCESS_LOCAL_WRITE);
		if (!mr || ibv_dereg_mr(mr))
			return -1;
	}
	return 0;
}

int c_create_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint64_t operations)
{
	for (uint64_t operation = 0; operation < operations; operation++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = cq,
			.recv_cq = cq,
			.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
			.qp_type = IBV_QPT_RC,
		};
		struct ibv_qp *qp;

		OPAQUE(pd);
		OPAQUE(cq);
		qp = ibv_create_qp(pd, &attr);
		if (!qp || ibv_destroy_qp(qp))
			return -1;
	}
	return 0;
}

/* What was built before is posted, as often as that: the least that C can do, beside the direct path, which builds its
 * requests. */
#define POST(name, queue, post, request)                                                \
	int name(struct queue *to, struct request *wr, uint64_t operations)             \
	{                                                                               \
		for (uint64_t operation = 0; operation < operations; operation++) {     \
			struct request *bad;                                            \
                                                                                        \
			OPAQUE(to);                                                     \
			OPAQUE(wr);                                                     \
			if (post(to, wr, &bad))                                         \
				return -1;                                              \
		}                                                                       \
		return 0;                                                               \
	}

POST(c_direct_write, ibv_qp, ibv_post_send, ibv_send_wr)
POST(c_direct_inline, ibv_qp, ibv_post_send, ibv_send_wr)
POST(c_direct_list_16, ibv_qp, ibv_post_send, ibv_send_wr)
POST(c_direct_recv, ibv_qp, ibv_post_recv, ibv_recv_wr)
POST(c_direct_recv_list_16, ibv_qp, ibv_post_recv, ibv_recv_wr)
POST(c_direct_shared_recv, ibv_srq, ibv_post_srq_recv, ibv_recv_wr)
POST(c_direct_shared_recv_list_16, ibv_srq, ibv_post_srq_recv, ibv_recv_wr)
