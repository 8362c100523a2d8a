//! The fabric between processes: those that joined one of the same name reach each other's ports.
//!
//! Small messages travel in the rings of [`shm`]; of larger ones the receiver copies the bytes out of (or into)
//! the sender's memory by `process_vm_readv` and `process_vm_writev`.

mod file;
pub(crate) mod shm;
mod wire;

use crate::bits::{Syndrome, be16, opcode, put, u8_at};
use crate::config::{Link, MAX_DEVICES};
use crate::engine::request::{Answer, Data, Payload, Request};
use crate::leaked::Leaked;
use crate::mem::{self, Space};
use crate::model::{Device, Model};
use crate::objects::QpKind;
use crate::objects::qp::Wait;
use shm::{FACTS_LEN, NODES, Push, Shm};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
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

static SHM: Leaked<Shm> = Leaked::new();

/// The shared memory, for those who don't hold the lock.
pub(crate) fn shared() -> Option<&'static Shm> {
    SHM.get()
}

/// In a forked child: the place is the parent's.
pub(crate) fn forget() {
    if let Some(s) = shared() {
        s.abandon();
    }
    SHM.forget();
}

extern "C" fn at_exit() {
    if let Some(s) = shared() {
        s.leave();
    }
}

impl Fabric {
    pub(crate) fn join(name: &str) -> Result<Self, String> {
        static AT_EXIT: AtomicBool = AtomicBool::new(false);
        if shared().is_some() {
            return Err("this process is on a fabric already".to_owned());
        }
        file::sweep();
        let shm = SHM.set(Shm::join(name)?);
        if !AT_EXIT.swap(true, Ordering::AcqRel) {
            crate::run::at_exit(at_exit);
        }
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

    /// What `node` tells about its device `dev`, if there is one.
    fn fact(&self, node: usize, dev: usize) -> Option<[u8; FACT]> {
        if node == self.shm.own || dev >= MAX_DEVICES || !self.shm.is_used(node) {
            return None;
        }
        let mut fact = [0; FACT];
        self.shm.read_facts(node, dev * FACT, &mut fact);
        (u8_at(&fact, 0) != 0).then_some(fact)
    }

    pub(crate) fn by_lid(&self, lid: u16) -> Option<Address> {
        let index = usize::from(lid.checked_sub(1)?);
        let (node, dev) = (index / MAX_DEVICES, index % MAX_DEVICES);
        let fact = self.fact(node, dev).filter(|_| node < NODES)?;
        (u8_at(&fact, 0) == 1 && be16(&fact, 2) == lid).then_some(address(node, dev))?
    }

    pub(crate) fn by_gid(&self, gid: &[u8; 16]) -> Option<Address> {
        let has = |fact: &[u8; FACT]| {
            let n = usize::from(u8_at(fact, 1)).min(GIDS);
            u8_at(fact, 0) == 2 && (0..n).any(|k| fact.get(4 + k * 16..20 + k * 16) == Some(gid.as_slice()))
        };
        let all = (0..NODES)
            .filter(|node| self.shm.is_used(*node))
            .flat_map(|node| (0..MAX_DEVICES).map(move |dev| (node, dev)));
        let mut found = all.filter(|(node, dev)| self.fact(*node, *dev).as_ref().is_some_and(has));
        found.next().and_then(|(node, dev)| address(node, dev))
    }

    fn send(&self, node: usize, message: &Message) -> Push {
        let sent = self.shm.push(node, &message.encode());
        if sent == Push::Sent {
            self.shm.ring_bell(node);
        }
        sent
    }

    fn answer(&mut self, node: usize, message: &Message) {
        let waits = self.backlog.iter().any(|(n, _)| *n == node);
        if waits || self.send(node, message) == Push::Full {
            self.backlog.push_back((node, message.encode()));
        }
    }

    /// Whether [`Model::poll_fabric`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.backlog.is_empty() || self.shm.has_senders()
    }

    fn flush_backlog(&mut self) {
        let mut full = 0u64;
        let shm = self.shm;
        self.backlog.retain(|(node, m)| {
            if full & 1 << node != 0 {
                return true;
            }
            match shm.push(*node, m) {
                Push::Full if shm.is_alive(*node) => {
                    full |= 1 << node;
                    true
                }
                Push::Sent => {
                    shm.ring_bell(*node);
                    false
                }
                Push::Full | Push::Lost => false,
            }
        });
    }
}

fn address(node: usize, dev: usize) -> Option<Address> {
    Some(Address { node: u16::try_from(node).ok()?, dev: u16::try_from(dev).ok()? })
}

/// Says once why long messages of some processes don't arrive.
fn tell_of_namespaces() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::AcqRel) {
        crate::log::tell(&format!(
            ": messages of more than {INLINE} bytes from processes of another PID namespace are lost: give the \
             containers one (docker run --pid=…)"
        ));
    }
}

impl Model {
    /// Sends QP `qpn`'s request to another process. `None`: the QP waits now.
    pub(crate) fn send_remote(&mut self, qpn: u32, to: Address, r: &Request) -> Option<Answer> {
        let f = self.fabric.as_ref()?;
        let node = usize::from(to.node);
        let now = self.now();
        let small = r.len <= INLINE;
        let request = if small && !opcode::is_read(r.op) {
            match r.bytes(INLINE) {
                Some(b) => Request { payload: Payload::Bytes(b), ..r.clone() },
                None => return Some(Answer::Nak(Syndrome::LocalProtection)),
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
        if !small {
            f.shm.let_copy();
        }
        match f.send(node, &message) {
            Push::Sent => {}
            Push::Full if f.shm.is_alive(node) => {
                // Try again soon, without counting it as a loss.
                q.delayed = true;
                self.set_wait(qpn, Wait::Rnr, Some(now + PATIENCE_NS));
                return None;
            }
            Push::Full | Push::Lost => return Some(Answer::Silent),
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
        for node in (0..NODES).filter(|n| *n != f.shm.own && f.shm.is_used(*n)) {
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
        let mut senders = shm.take_senders();
        while senders != 0 {
            // A bound, so that one busy peer can't keep the device from the others.
            const AT_ONCE: usize = 64;
            let src = senders.trailing_zeros() as usize;
            senders &= senders - 1;
            let sender = shm.generation(src);
            let process = || match shm.process(src) {
                // Another process has the place now (see `shm::enter`).
                _ if shm.generation(src) != sender => 0,
                0 if shm.is_alive(src) => {
                    tell_of_namespaces();
                    0
                }
                pid => pid,
            };
            for n in 1..=AT_ONCE {
                let Some(bytes) = shm.pop(src) else { break };
                if n == AT_ONCE {
                    shm.put_back_sender(src);
                }
                busy = true;
                match Message::decode(&bytes, process) {
                    Some(Message::Request { generation, dev, transmission, request })
                        if generation == own =>
                    {
                        self.serve(src, sender, dev, transmission, &request);
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

    /// Executes a request of place `src`, while that had generation `generation`.
    fn serve(&mut self, src: usize, generation: u64, dev: u16, transmission: u32, r: &Request) {
        let mut answer = self.respond(usize::from(dev), r);
        if let Answer::Ack(Data::Spans(from)) = &answer {
            let placed = match &r.payload {
                _ if r.len <= INLINE => mem::gather(Space::Own, from, r.len).map(Data::Bytes),
                Payload::Spans(space, to) => {
                    mem::transfer(*space, to, Space::Own, from).ok().map(|()| Data::Placed)
                }
                Payload::Bytes(_) => None,
            };
            answer = placed.map_or(Answer::Silent, Answer::Ack);
        }
        if transmission == 0 || matches!(answer, Answer::Silent) {
            return;
        }
        let Some(f) = self.fabric.as_mut() else { return };
        f.answer(src, &Message::Answer { generation, qpn: r.src_qpn, transmission, answer });
    }
}
