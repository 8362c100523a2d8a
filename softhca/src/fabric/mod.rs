//! The fabric between processes: those that joined one of the same name reach each other's ports.
//!
//! Small messages travel in the rings of [`shm`]; of larger ones the receiver copies the bytes out of (or into)
//! the sender's memory by `process_vm_readv` and `process_vm_writev`.
//!
//! # Safety
//!
//! The pointer to this process's place is null or leads to a leaked value.
#![expect(unsafe_code, reason = "reads a leaked value without a lock")]

pub(crate) mod shm;
mod wire;

use crate::bits::{be16, opcode, put, u8_at};
use crate::config::{Link, MAX_DEVICES};
use crate::engine::request::{Answer, Data, Payload, Request};
use crate::mem::{self, Space};
use crate::model::{Device, Model};
use crate::objects::QpKind;
use crate::objects::qp::Wait;
use shm::{FACTS_LEN, NODES, Shm};
use std::collections::VecDeque;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};
use wire::Message;

/// Messages up to this size travel in the ring.
const INLINE: u64 = 16 * 1024;
/// GIDs of a device that others see.
const GIDS: usize = 16;
/// Bytes about a device in the shared facts: link, number of GIDs, LID, GIDs.
const FACT: usize = 4 + GIDS * 16;
/// How long a full ring, or the reader of a large unacknowledged message, is waited for.
const PATIENCE_NS: u64 = 20_000;
const UNACKNOWLEDGED_NS: u64 = 100_000_000;

/// A port of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) node: u16,
    pub(crate) dev: u16,
}

/// This process's place on a fabric.
#[derive(Debug)]
pub(crate) struct Fabric {
    shm: &'static Shm,
    /// Answers that found a full ring.
    backlog: VecDeque<(usize, Vec<u8>)>,
}

static SHM: AtomicPtr<Shm> = AtomicPtr::new(std::ptr::null_mut());

/// The shared memory, for those who don't hold the lock.
pub(crate) fn shared() -> Option<&'static Shm> {
    // SAFETY: null, or a leaked value that is never changed.
    unsafe { SHM.load(Ordering::Acquire).as_ref() }
}

/// In a forked child: the place is the parent's.
pub(crate) fn forget() {
    SHM.store(std::ptr::null_mut(), Ordering::Release);
}

extern "C" fn at_exit() {
    if let Some(s) = shared() {
        s.leave();
    }
}

impl Fabric {
    pub(crate) fn join(name: &str) -> Result<Self, String> {
        static AT_EXIT: Once = Once::new();
        if shared().is_some() {
            return Err("this process is on a fabric already".to_owned());
        }
        let shm: &'static Shm = Box::leak(Box::new(Shm::join(name)?));
        SHM.store(std::ptr::from_ref(shm).cast_mut(), Ordering::Release);
        AT_EXIT.call_once(|| crate::run::at_exit(at_exit));
        Ok(Self { shm, backlog: VecDeque::new() })
    }

    /// The LID of this process's first device.
    pub(crate) fn base_lid(&self) -> u16 {
        u16::try_from(self.shm.own * MAX_DEVICES + 1).unwrap_or(1)
    }

    /// Tells the others about our devices.
    pub(crate) fn publish(&self, devices: &[Device]) {
        let mut b = [0u8; FACTS_LEN];
        for (i, d) in devices.iter().enumerate() {
            let at = i * FACT;
            let n = d.gids.len().min(GIDS);
            let link = if d.link == Link::InfiniBand { 1 } else { 2 };
            put(&mut b, at, &[link, u8::try_from(n).unwrap_or(0)]);
            put(&mut b, at + 2, &d.lid.to_be_bytes());
            for (k, g) in d.gids.iter().take(n).enumerate() {
                put(&mut b, at + 4 + k * 16, &g.raw);
            }
        }
        self.shm.write_facts(&b);
    }

    /// Finds a device of another process.
    fn find(&self, wanted: impl Fn(&[u8]) -> bool) -> Option<Address> {
        let mut b = [0u8; FACTS_LEN];
        for node in (0..NODES).filter(|n| *n != self.shm.own && self.shm.pid(*n) != 0) {
            self.shm.facts(node, &mut b);
            let found = b.chunks_exact(FACT).take(MAX_DEVICES).position(|f| u8_at(f, 0) != 0 && wanted(f));
            if let Some(dev) = found {
                return Some(Address { node: u16::try_from(node).ok()?, dev: u16::try_from(dev).ok()? });
            }
        }
        None
    }

    pub(crate) fn by_lid(&self, lid: u16) -> Option<Address> {
        self.find(|f| u8_at(f, 0) == 1 && be16(f, 2) == lid)
    }

    pub(crate) fn by_gid(&self, gid: &[u8; 16]) -> Option<Address> {
        self.find(|f| {
            let n = usize::from(u8_at(f, 1)).min(GIDS);
            u8_at(f, 0) == 2 && (0..n).any(|k| f.get(4 + k * 16..20 + k * 16) == Some(gid.as_slice()))
        })
    }

    fn send(&self, node: usize, message: &Message) -> bool {
        let sent = self.shm.push(node, &message.encode());
        if sent {
            self.shm.ring_bell(node);
        }
        sent
    }

    fn answer(&mut self, node: usize, message: &Message) {
        if !self.backlog.is_empty() || !self.send(node, message) {
            self.backlog.push_back((node, message.encode()));
        }
    }

    fn flush_backlog(&mut self) {
        while let Some((node, m)) = self.backlog.pop_front() {
            if self.shm.push(node, &m) {
                self.shm.ring_bell(node);
            } else {
                if self.shm.is_alive(node) {
                    self.backlog.push_front((node, m));
                }
                return;
            }
        }
    }
}

fn is_read(op: u8) -> bool {
    matches!(op, opcode::RDMA_READ | opcode::ATOMIC_CS | opcode::ATOMIC_FA)
}

impl Model {
    /// Sends QP `qpn`'s request to another process. `None`: the QP waits now.
    pub(crate) fn send_remote(&mut self, qpn: u32, to: Address, r: &Request) -> Option<Answer> {
        let f = self.fabric.as_ref()?;
        let node = usize::from(to.node);
        let now = self.now();
        let small = r.len <= INLINE;
        let request = if small && !is_read(r.op) {
            match r.bytes(INLINE) {
                Some(b) => Request { payload: Payload::Bytes(b), ..r.clone() },
                None => return Some(Answer::Silent),
            }
        } else {
            r.clone()
        };
        let owed = r.kind.is_reliable() || !small;
        let q = self.qps.get_mut(qpn)?;
        // Transmission 0 means "no answer".
        q.transmission = q.transmission.wrapping_add(1).max(1);
        let transmission = if owed { q.transmission } else { 0 };
        let timeout = q.attr.timeout;
        let generation = f.shm.generation(node);
        let message = Message::Request { generation, dev: to.dev, transmission, request };
        if !f.send(node, &message) {
            if !f.shm.is_alive(node) {
                return Some(Answer::Silent);
            }
            // The ring is full: try again soon, without counting it as a loss.
            q.delayed = true;
            self.set_wait(qpn, Wait::Rnr, Some(now + PATIENCE_NS));
            return None;
        }
        if !owed {
            return Some(Answer::Ack(Data::None));
        }
        let until = if r.kind == QpKind::Uc {
            Some(now + UNACKNOWLEDGED_NS)
        } else {
            (timeout != 0).then(|| now.saturating_add(4096u64 << timeout.min(31)))
        };
        self.set_wait(qpn, Wait::Answer, until);
        None
    }

    /// Sends a multicast datagram to all other processes.
    pub(crate) fn broadcast_remote(&mut self, gid: &[u8; 16], r: &Request) {
        let Some(f) = self.fabric.as_ref() else { return };
        let Some(bytes) = r.bytes(INLINE) else { return };
        let request = Request { payload: Payload::Bytes(bytes), ..r.clone() };
        for node in (0..NODES).filter(|n| *n != f.shm.own && f.shm.pid(*n) != 0) {
            let generation = f.shm.generation(node);
            f.send(node, &Message::Group { generation, gid: *gid, request: request.clone() });
        }
    }

    /// Handles what other processes sent.
    pub(crate) fn poll_fabric(&mut self) -> bool {
        let Some(f) = self.fabric.as_mut() else { return false };
        f.flush_backlog();
        let shm = f.shm;
        let own = shm.generation(shm.own);
        let mut busy = false;
        for src in 0..NODES {
            // A bound, so that one busy peer can't keep the device from the others.
            for _ in 0..64 {
                if !shm.has_message(src) {
                    break;
                }
                let Some(bytes) = shm.pop(src) else { break };
                busy = true;
                match Message::decode(&bytes, shm.pid(src)) {
                    Some(Message::Request { generation, dev, transmission, request })
                        if generation == own =>
                    {
                        self.serve(src, dev, transmission, &request);
                    }
                    Some(Message::Answer { generation, qpn, transmission, answer }) if generation == own => {
                        self.answered(qpn, transmission, answer);
                    }
                    Some(Message::Group { generation, gid, request }) if generation == own => {
                        self.deliver_group(&gid, &request, |_, _, _| true);
                    }
                    // For a process that had this place before.
                    Some(_) => {}
                    None => self.log(|| format!("a message of node {src} makes no sense")),
                }
            }
        }
        busy
    }

    fn serve(&mut self, src: usize, dev: u16, transmission: u32, r: &Request) {
        let mut answer = self.respond(usize::from(dev), r);
        if let Answer::Ack(Data::Spans(from)) = &answer {
            let placed = match &r.payload {
                _ if r.len <= INLINE => mem::gather(Space::Own, from, r.len).map(Data::Bytes),
                Payload::Spans(space, to) => {
                    mem::transfer(*space, to, Space::Own, from).then_some(Data::Placed)
                }
                Payload::Bytes(_) => None,
            };
            answer = placed.map_or(Answer::Silent, Answer::Ack);
        }
        if transmission == 0 || matches!(answer, Answer::Silent) {
            return;
        }
        let Some(f) = self.fabric.as_mut() else { return };
        let generation = f.shm.generation(src);
        f.answer(src, &Message::Answer { generation, qpn: r.src_qpn, transmission, answer });
    }
}
