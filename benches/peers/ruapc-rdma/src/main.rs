//! `ruapc-rdma`: SEND and RECV of buffers from its pool, which a post takes and a completion gives back; no WRITE,
//! inline or list. A fixed set of buffers goes around, so that the pool's own cost is left out. A queue pair has one
//! completion queue, so there are two: one sends to the other.

use std::process::ExitCode;
use std::sync::Arc;

use ibv_bench_peers::{DEPTH, LENGTH, Link, Peer, opaque, opaque_mut, polls, repeat};
use ruapc_bufpool::{Buffer, BufferPoolBuilder, Device as _, DeviceIndex, DeviceSet};
use ruapc_rdma::{
    ActiveDevice, CompletionBatch, CompletionCursor, CompletionQueue, QpConnectionConfig, QueuePair,
    ibv_qp_cap, ibv_qp_init_attr, ibv_qp_type, ibv_send_flags,
};

#[derive(Debug)]
struct Registered {
    active: ActiveDevice,
    index: DeviceIndex,
}

impl ruapc_bufpool::Device for Registered {
    type Registrar = ActiveDevice;

    fn registrar(&self) -> &ActiveDevice {
        &self.active
    }

    fn index(&self) -> DeviceIndex {
        self.index
    }

    fn set_index(&mut self, index: DeviceIndex) {
        self.index = index;
    }
}

struct End {
    qp: QueuePair,
    cq: Arc<CompletionQueue>,
    cursor: CompletionCursor,
    free: Vec<Buffer>,
}

impl End {
    /// How many completions a poll finds, all of success; their buffers are free again.
    #[inline(always)]
    fn poll<const N: usize>(&mut self, batch: &mut CompletionBatch<N>) -> u64 {
        let Self { qp, cq, cursor, free } = self;
        let mut found = 0;
        for completion in cq.poll_batch(batch).expect("a poll") {
            let done = qp.complete(completion, cursor).expect("a completion");
            assert!(done.wc.succ());
            free.extend(done.buffer.and_then(|buffer| buffer.into_single()));
            found += 1;
        }
        found
    }

    fn polls<const N: usize>(&mut self, operations: u64, found: u64) {
        let mut batch = CompletionBatch::<N>::new();
        // its completions have no ids: how many they are
        let count = polls(operations, |count| *count += opaque_mut(&mut *self).poll(opaque_mut(&mut batch)));
        assert_eq!(count, operations * found);
    }
}

struct Objects {
    sender: End,
    receiver: End,
}

impl Peer for Objects {
    fn rows(&self) -> &'static [(&'static str, u32)] {
        &[("post_send", 1), ("post_recv", 1), ("poll_1", 1), ("poll_16", 16), ("poll_empty", 1)]
    }

    fn run(&mut self, row: &str, operations: u64) {
        match row {
            "post_send" => self.send(operations),
            "post_recv" => self.receive(operations),
            "poll_1" => self.sender.polls::<1>(operations, 1),
            "poll_16" => self.sender.polls::<16>(operations, 16),
            "poll_empty" => self.sender.polls::<32>(operations, 0),
            _ => unreachable!(),
        }
    }

    fn receive(&mut self, requests: u64) {
        repeat(requests, |_| {
            let End { qp, free, .. } = opaque_mut(&mut self.receiver);
            opaque(qp).recv(free.pop().expect("a buffer")).expect("a receive");
        });
    }

    fn send(&mut self, requests: u64) {
        repeat(requests, |_| {
            let End { qp, free, .. } = opaque_mut(&mut self.sender);
            opaque(qp).send_signaled(free.pop().expect("a buffer"), ibv_send_flags(0)).expect("a send");
        });
    }

    fn drain(&mut self) {
        for end in [&mut self.sender, &mut self.receiver] {
            let mut batch = CompletionBatch::<16>::new();
            while end.poll(&mut batch) > 0 {}
        }
    }
}

fn open(_row: &str) -> Box<dyn Peer> {
    let mut devices = DeviceSet::default();
    let active = ActiveDevice::available().expect("devices").into_iter().next().expect("a device");
    devices.push(Registered { active, index: DeviceIndex::default() });
    let devices = Arc::new(devices);
    let device = &devices.devices()[0];
    let pool = BufferPoolBuilder::new(Arc::clone(&devices) as Arc<_>).build();
    let end = || {
        let cq = CompletionQueue::create(device.active.context(), 2 * DEPTH as i32, None).expect("a queue");
        let cap = ibv_qp_cap {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            ..Default::default()
        };
        let mut attr = ibv_qp_init_attr { qp_type: ibv_qp_type::IBV_QPT_RC, cap, ..Default::default() };
        let qp = QueuePair::create(device.active.pd(), &cq, &mut attr, device.index()).expect("a queue pair");
        let buffer = || {
            let mut buffer = pool.allocate(LENGTH).expect("a buffer");
            buffer.set_len(LENGTH);
            buffer
        };
        let free = std::iter::repeat_with(buffer).take(DEPTH as usize).collect();
        End { qp, cq, cursor: CompletionCursor::default(), free }
    };
    let (sender, receiver) = (end(), end());
    let port = device.active.info().ports.iter().find(|port| port.is_usable()).expect("a port");
    let gid = port.gids.first().expect("a GID");
    let connect = |end: &End, peer: &End| {
        let config = QpConnectionConfig {
            local_port_num: port.port_num,
            local_gid_index: gid.index,
            pkey_index: 0,
            link_layer: port.port_attr.link_layer,
            path_mtu: port.port_attr.active_mtu,
            remote_qp_num: peer.qp.qp_num(),
            remote_gid: gid.gid,
            remote_lid: port.port_attr.lid,
            local_psn: 7,
            remote_psn: 7,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            traffic_class: 0,
        };
        end.qp.connect(&config).expect("connected");
    };
    connect(&sender, &receiver);
    connect(&receiver, &sender);
    // the pool and its device live as long as the program
    std::mem::forget((pool, Arc::clone(&devices)));
    Box::new(Objects { sender, receiver })
}

fn main() -> ExitCode {
    ibv_bench_peers::main(Link::InfiniBand, open)
}
