//! The mistakes.

/// A mistake in the data path.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// Below `src`.
    pub(super) file: &'static str,
    /// What stands there, exactly once each, and what shall.
    pub(super) edits: &'static [(&'static str, &'static str)],
    /// What the test's failure must say.
    pub(super) says: &'static str,
}

const SEND_RECORD: &str = "self.record.store::<{ qp_record::SEND }>(next & 0xffff);";
const SEND_RECORD_THERE: &str = "queue.record.store::<{ qp_record::SEND }>(next & 0xffff);";
const SHARED_RECORD: &str = "self.record.store::<{ srq::RECORD }>((posted & 0xffff) as u32);";
const RECV_RECORD: &str = "queue.record.store::<{ qp_record::RECV }>(next & 0xffff);";

pub(super) const MUTANTS: [Mutant; 25] = [
    Mutant {
        name: "record after the register",
        file: "mlx5/post.rs",
        edits: &[
            ("            queue.tell(next);\n", ""),
            (
                "        Written { block }\n    }\n}",
                "        if ALONE {\n            queue.tell(next);\n        }\n        Written { block }\n    }\n}",
            ),
        ],
        says: "but its doorbell record says",
    },
    Mutant {
        name: "record missing",
        file: "mlx5/post.rs",
        edits: &[(SEND_RECORD, "")],
        says: "but its doorbell record says",
    },
    Mutant {
        name: "record one behind",
        file: "mlx5/post.rs",
        edits: &[(SEND_RECORD, "self.record.store::<{ qp_record::SEND }>(next.wrapping_sub(1) & 0xffff);")],
        says: "but its doorbell record says",
    },
    Mutant {
        name: "record one ahead",
        file: "mlx5/post.rs",
        edits: &[(SEND_RECORD, "self.record.store::<{ qp_record::SEND }>(next.wrapping_add(1) & 0xffff);")],
        says: "is not in the ring",
    },
    Mutant {
        name: "record at once, before the WQE",
        file: "mlx5/post.rs",
        edits: &[
            ("unsafe { block.put(0, control) };", "if !ALONE { unsafe { block.put(0, control) } };"),
            (
                "            queue.tell(next);\n",
                "            queue.tell(next);\n            unsafe { block.put(0, control) };\n",
            ),
        ],
        says: "is not in the ring",
    },
    Mutant {
        name: "record in the receive queue's word",
        file: "mlx5/post.rs",
        edits: &[(SEND_RECORD, "self.record.store::<{ qp_record::RECV }>(next & 0xffff);")],
        says: "but its doorbell record says",
    },
    Mutant {
        name: "WQE of the index before",
        file: "mlx5/wqe.rs",
        edits: &[("((index & 0xffff) << 8", "((index.wrapping_sub(1) & 0xffff) << 8")],
        says: "is not in the ring",
    },
    Mutant {
        name: "WQE of another queue pair",
        file: "mlx5/qp.rs",
        edits: &[("number: u64::from(number) << 8,", "number: u64::from(number ^ 1) << 8,")],
        says: "is not in the ring",
    },
    Mutant {
        name: "WQE too short",
        file: "mlx5/post.rs",
        edits: &[("queue.number, units as u32,", "queue.number, 1 + (units as u32 & 3),")],
        says: "is not in the ring",
    },
    Mutant {
        name: "doorbell of a list for its first WQE",
        file: "mlx5/batch.rs",
        edits: &[("self.last = Some(written.block);", "self.last.get_or_insert(written.block);")],
        says: "but its doorbell record says",
    },
    Mutant {
        name: "register never in turn",
        file: "mlx5/mmio.rs",
        edits: &[("map_addr(|address| address ^ self.size)", "map_addr(|address| address)")],
        says: "as was the one before",
    },
    Mutant {
        name: "register where none is",
        file: "mlx5/mmio.rs",
        edits: &[(
            "known.then_some(Self { at: base, size })",
            "known.then_some(Self { at: unsafe { base.sub(0x400) }, size })",
        )],
        says: "where no register is",
    },
    Mutant {
        name: "register rung in two stores",
        file: "mlx5/mmio.rs",
        edits: &[(
            "unsafe { at.cast::<u64>().as_ptr().write_volatile(word) };",
            "unsafe { at.cast::<[u32; 2]>().as_ptr().cast::<u32>().write_volatile(word as u32); at.cast::<u32>().add(1).as_ptr().write_volatile((word >> 32) as u32) };",
        )],
        says: "store of 4 bytes",
    },
    Mutant {
        name: "copy of the first block again",
        file: "mlx5/mmio.rs",
        edits: &[("copy_line(ring.block(index.wrapping_add(block)), to", "copy_line(ring.block(index), to")],
        says: "differs from the ring",
    },
    Mutant {
        name: "receive record missing",
        file: "mlx5/post.rs",
        edits: &[(RECV_RECORD, "let _ = next;")],
        says: "requests complete",
    },
    Mutant {
        name: "receive record in the send queue's word",
        file: "mlx5/post.rs",
        edits: &[(RECV_RECORD, SEND_RECORD_THERE)],
        says: "is not in the ring",
    },
    Mutant {
        name: "arm record missing",
        file: "mlx5/poller.rs",
        edits: &[("        parts.record.store::<{ cq_record::ARM }>(word);\n", "")],
        says: "but its record says",
    },
    Mutant {
        name: "arm register missing",
        file: "mlx5/poller.rs",
        edits: &[("        parts.register.ring(u64::from(word) << 32 | u64::from(parts.number));\n", "")],
        says: "events are raised",
    },
    Mutant {
        name: "consumed entries never given back",
        file: "mlx5/poller.rs",
        edits: &[(
            "self.shared.parts().record.store::<{ cq_record::CONSUMER }>(self.consumed() & cq_record::INDEX);",
            "",
        )],
        says: "requests complete",
    },
    Mutant {
        name: "shared record before the WQE",
        file: "mlx5/srq.rs",
        edits: &[
            (
                "let (ring, stride) = (self.ring, self.stride);",
                "let (ring, stride, late) = (self.ring, self.stride, std::cell::Cell::new(None));",
            ),
            (
                "unsafe { slot.put(at, segment) };",
                "if at == 0 { late.set(Some((slot, segment))) } else { unsafe { slot.put(at, segment) } };",
            ),
            (
                SHARED_RECORD,
                "self.record.store::<{ srq::RECORD }>((posted & 0xffff) as u32);\n\
                 late.take().into_iter().for_each(|(slot, segment)| unsafe { slot.put(0, segment) });",
            ),
        ],
        says: "is not what it was when the doorbell record counted it",
    },
    Mutant {
        name: "shared record one ahead",
        file: "mlx5/srq.rs",
        edits: &[(SHARED_RECORD, "self.record.store::<{ srq::RECORD }>((posted + 1 & 0xffff) as u32);")],
        says: "is not what it was when the doorbell record counted it",
    },
    Mutant {
        name: "shared record missing",
        file: "mlx5/srq.rs",
        edits: &[(SHARED_RECORD, "let _ = (posted, self.record);")],
        says: "receives complete in their order",
    },
    Mutant {
        name: "shared receive linked to another",
        file: "mlx5/srq.rs",
        edits: &[("slot.link(after as u16)", "slot.link(after as u16 ^ 1)")],
        says: "so many receives are outstanding as there is room for",
    },
    Mutant {
        name: "shared slot freed twice",
        file: "mlx5/chain.rs",
        edits: &[(
            "self.tail.store(tail + 1, Ordering::Release);",
            "self.table.order.at(tail as u32 + 1).store(slot, Ordering::Relaxed);\n\
             self.tail.store(tail + 2, Ordering::Release);",
        )],
        says: "so many receives are outstanding as there is room for",
    },
    Mutant {
        name: "shared slot of a reset queue pair never freed",
        file: "mlx5/poller.rs",
        edits: &[("if is_retired && !(is_recv && lanes.shared.is_some()) {", "if is_retired {")],
        says: "so many receives are outstanding as there is room for",
    },
];

/// What costs an instruction or two more, and changes nothing else.
pub(super) const COSTS: [Mutant; 4] = [
    Mutant {
        name: "counts: a branch in a post",
        file: "qp/post.rs",
        edits: &[(
            "unsafe { post_send(self.qp, &self.limits, &request) }",
            "if self.qp.as_ptr().addr() == 1 {\n            return Err(PostError::QueueFull);\n        }\n        \
             unsafe { post_send(self.qp, &self.limits, &request) }",
        )],
        says: "null/post_write",
    },
    Mutant {
        name: "counts: a bounds check in a poll",
        file: "cq/mod.rs",
        edits: &[(
            "std::hint::assert_unchecked(count as usize <= wcs.len());",
            "assert!(count as usize <= wcs.len());",
        )],
        says: "null/poll_16",
    },
    Mutant {
        name: "counts: an assertion in a direct post",
        file: "mlx5/post.rs",
        edits: &[(
            "unsafe { block.put(0, control) };",
            "assert!(index != 1 << 30);\nunsafe { block.put(0, control) };",
        )],
        says: "direct/direct_write",
    },
    Mutant {
        name: "counts: an assertion in a direct poll",
        file: "mlx5/poller.rs",
        edits: &[(
            "const SENT: u8 = cqe::REQ << 4;",
            "const SENT: u8 = cqe::REQ << 4;\n        assert!(self.stretch != 7);",
        )],
        says: "direct/direct_poll_16",
    },
];

/// What the machine code shows: fences and locks too many and too few. Nothing else fails of it on ordinary memory.
pub(super) const FENCES: [Mutant; 6] = [
    Mutant {
        name: "fences: none between record and register",
        file: "mlx5/barrier.rs",
        edits: &[("record_before_register: x86_64 \"sfence\"", "record_before_register: x86_64 \"\"")],
        says: "ours_direct_write at",
    },
    Mutant {
        name: "fences: one after a copy",
        file: "mlx5/barrier.rs",
        edits: &[("    #[cfg(target_arch = \"aarch64\")]\n    flush_register();", "    flush_register();")],
        says: "an sfence after the copy",
    },
    Mutant {
        name: "fences: a doorbell is not flushed",
        file: "mlx5/barrier.rs",
        edits: &[("flush_register: x86_64 \"sfence\"", "flush_register: x86_64 \"\"")],
        says: "ours_direct_list_16",
    },
    Mutant {
        name: "fences: one in a receive",
        file: "mlx5/barrier.rs",
        edits: &[("wqe_before_record: x86_64 \"\"", "wqe_before_record: x86_64 \"sfence\"")],
        says: "ours_direct_recv at",
    },
    Mutant {
        name: "fences: a load fence in a poll",
        file: "mlx5/barrier.rs",
        edits: &[("cqe_after_owner: x86_64 \"\"", "cqe_after_owner: x86_64 \"lfence\"")],
        says: "ours_direct_poll_16 at",
    },
    Mutant {
        name: "fences: a locked instruction in a poll",
        file: "mlx5/poller.rs",
        edits: &[(
            "let at = self.at;\n        self.shared.consumed().store(next, Ordering::Release);",
            "let at = self.at;\n        self.shared.consumed().swap(next, Ordering::Release);",
        )],
        says: "ours_direct_poll_1 at",
    },
];
