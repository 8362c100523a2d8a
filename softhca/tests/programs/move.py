"""Moves data with RC, UC and UD through Debian's python3-pyverbs."""
import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

name = d.get_device_list()[0].name.decode()
ctx = d.Context(name=name)
port = ctx.query_port(1)
roce = port.link_layer == 2
index = 1 if roce else 0
pd, cq = PD(ctx), CQ(ctx, 16)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)


def ah_attr():
    gr = GlobalRoute(dgid=ctx.query_gid(1, index), sgid_index=index)
    return AHAttr(gr=gr, is_global=1, port_num=1, dlid=port.lid)


def poll(n):
    got = []
    while len(got) < n:
        _, wcs = cq.poll(1)
        for wc in wcs:
            assert wc.status == e.IBV_WC_SUCCESS, wc
            got.append(wc)
    return got


for kind in (e.IBV_QPT_RC, e.IBV_QPT_UC, e.IBV_QPT_UD):
    ud = kind == e.IBV_QPT_UD
    init = QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4, max_recv_wr=4))
    a, b = QP(pd, init), QP(pd, init)
    for x, y in ((a, b), (b, a)):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        attr.qkey = 0x1234
        attr.dest_qp_num = y.qp_num
        attr.path_mtu = 3
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        attr.ah_attr = ah_attr()
        x.to_rts(attr)
    for size in (1, 32, 33, 1000):
        head = 40 if ud else 0
        mr.write("x" * size, size)
        b.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf + 2048, size + head, mr.lkey)]))
        wr = SendWR(num_sge=1, sg=[SGE(mr.buf, size, mr.lkey)])
        if ud:
            wr.set_wr_ud(AH(pd, attr=ah_attr()), b.qp_num, 0x1234)
        a.post_send(wr)
        lens = sorted(wc.byte_len for wc in poll(2))
        assert size + head in lens, lens
        assert mr.read(size, 2048 + head) == b"x" * size
    a.close()
    b.close()
print("ok")
