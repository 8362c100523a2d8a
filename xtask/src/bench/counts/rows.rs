//! What is counted, and what it may cost.

/// Rows of a kind, which one program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// On a provider that does nothing, whose own instructions are left out.
    Null,
    /// Through libmlx5, with its instructions.
    Libmlx5,
    /// The direct path, beside libmlx5.
    Direct,
}

impl Group {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Libmlx5 => "libmlx5",
            Self::Direct => "direct",
        }
    }

    /// Whether what ours cost is a number of its own, to be kept to. (Through libmlx5 it is mostly libmlx5's.)
    pub(super) fn is_exact(self) -> bool {
        self != Self::Libmlx5
    }
}

/// The most that an operation may cost.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bar {
    /// So many instructions more than C's.
    Extra(u32),
    /// So many more for each request or completion, and C's times that.
    Within { extra: u32, ratio: f64 },
    /// C's times that.
    Ratio(f64),
}

/// A row.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) group: Group,
    pub(super) name: &'static str,
    /// The functions' names.
    pub(super) ours: &'static str,
    pub(super) theirs: &'static str,
    /// Requests or completions of an operation.
    pub(super) each: u32,
    pub(super) bar: Bar,
    /// The least that each can cost on x86-64 with 16-byte stores, if it was worked out.
    pub(super) floor: Option<u32>,
}

impl Pair {
    /// What an operation of ours may cost, if C's costs so much.
    pub(super) fn most(&self, theirs: f64) -> f64 {
        match self.bar {
            Bar::Extra(extra) => theirs + f64::from(extra),
            Bar::Within { extra, ratio } => (theirs + f64::from(extra * self.each)).min(theirs * ratio),
            Bar::Ratio(ratio) => theirs * ratio,
        }
    }
}

macro_rules! rows {
    ($($group:ident { $(
        $name:ident $(as $ours:ident)? $(beside $theirs:ident)? $(/ $each:literal)?: $bar:expr $(, floor $floor:literal)?;
    )* })*) => {
        &[$($(Pair {
            group: Group::$group,
            name: stringify!($name),
            ours: rows!(@ named "ours_" $name $($ours)?),
            theirs: rows!(@ named "c_" $name $($theirs)?),
            each: rows!(@ 1 $($each)?),
            bar: $bar,
            floor: rows!(@ floor $($floor)?),
        }),*),*]
    };
    (@ named $whose:literal $name:ident) => { concat!($whose, stringify!($name)) };
    (@ named $whose:literal $row:ident $name:ident) => { concat!($whose, stringify!($name)) };
    (@ floor) => { None };
    (@ floor $floor:literal) => { Some($floor) };
    (@ $default:literal) => { $default };
    (@ $default:literal $given:literal) => { $given };
}

use Bar::{Extra, Ratio};

/// For a request beside C's through the same library.
const POST: Bar = Bar::Within { extra: 10, ratio: 1.03 };
/// For a completion.
const POLL: Bar = Bar::Within { extra: 4, ratio: 1.04 };

/// For why each bar is what it is see [`about`].
pub(super) const PAIRS: &[Pair] = rows! {
    Null {
        post_write: Extra(6);
        post_unsignaled: Extra(6);
        designated_write as post_write: Extra(6);
        post_send: Extra(6);
        post_send_inline: Extra(6);
        post_fetch_add: Extra(6);
        post_ud_send: Extra(6);
        post_recv: Extra(6);
        post_prepared: Extra(5);
        write_list_16 / 16: Extra(0);
        write_distinct_16 / 16: Extra(0);
        recv_list_16 / 16: Extra(0);
        poll_1: Extra(0);
        poll_16 / 16: Extra(0);
        poll_empty: Extra(4);
        poll_ex_1: Extra(0);
        poll_ex_16 / 16: Extra(80);
        poll_ex_ids_16 / 16: Extra(0);
        poll_ex_fields_16 / 16: Extra(384);
        poll_ex_empty: Extra(0);
        arm: Extra(6);
        wr_write: Extra(8);
        wr_write_value: Extra(12);
        wr_send_inline: Extra(6);
        wr_write_list_16 / 16: Extra(0);
        untrusted_write beside post_write: Ratio(5.2);
        untrusted_list_16 / 16: Ratio(3.7);
    }
    Libmlx5 {
        post_write: POST;
        post_unsignaled: POST;
        designated_write as post_write: POST;
        post_send: POST;
        post_send_inline: POST;
        post_fetch_add: POST;
        post_ud_send: POST;
        post_recv: POST;
        post_prepared: POST;
        write_list_16 / 16: POST;
        write_distinct_16 / 16: POST;
        recv_list_16 / 16: POST;
        poll_1: POLL;
        poll_16 / 16: POLL;
        poll_empty: POLL;
        poll_ex_1: POLL;
        poll_ex_16 / 16: Bar::Within { extra: 5, ratio: 1.04 };
        poll_ex_ids_16 / 16: POLL;
        poll_ex_fields_16 / 16: Ratio(1.20);
        poll_ex_empty: POLL;
        arm: POST;
        wr_write: POST;
        wr_write_value: Bar::Within { extra: 12, ratio: 1.05 };
        wr_send_inline: POST;
        wr_write_list_16 / 16: POST;
        untrusted_write beside post_write: Ratio(1.38);
        untrusted_list_16 / 16: Ratio(1.30);
        register: Ratio(1.10);
        create_qp: Ratio(1.10);
    }
    Direct {
        direct_write: Ratio(0.25), floor 36;
        direct_inline: Ratio(0.22);
        direct_list_16 / 16: Ratio(0.30), floor 24;
        direct_recv: Ratio(0.40);
        direct_recv_list_16 / 16: Ratio(0.40);
        direct_shared_recv: Ratio(0.55);
        direct_shared_recv_list_16 / 16: Ratio(0.65);
        direct_shared_poll_8 / 8: Ratio(0.65);
        direct_poll_1: Ratio(0.35), floor 12;
        direct_poll_16 / 16: Ratio(0.35), floor 12;
        direct_poll_recv_16 / 16: Ratio(0.35);
        direct_poll_empty: Ratio(0.20), floor 7;
        direct_poll_data_16 / 16: Ratio(0.45);
    }
};

/// How a group of counts is to be read, with the reasons of its bars.
pub(in crate::bench) fn about(group: &str) -> &'static str {
    match group {
        "null" => {
            "Of a request or a completion, exact; the provider's own are left out. The bar is what a row may have: of a \
             single post or an event's request 6 more than C, for the checks of bounds and of what the object was made \
             for; of a prepared one 5, for the look at whose it is; of an empty `ibv_poll_cq` 4, for the look at what \
             destroyed queue pairs left behind; of lists and other polls none. But completions of an extended queue are \
             copied out before anybody looks at them, where C reads them in place: 5 for each (one load of two fields \
             would be 1 less, but waits for the provider's stores to them, three times as long); 24 with three fields, \
             since each is stored and loaded, and whether there are bytes is decided apart from their use. `wr_write` may \
             have 8, and 12 if its data is a value: values are kept in registers over `ibv_wr_start`, where C loads them \
             later. `untrusted_…` is written request by request to a list that `ibv_post_send` gets, and may cost 5.2 times \
             C's `ibv_post_send`, in lists of 16 3.7 times."
        }
        "libmlx5" => {
            "Of a request or a completion, exact; with libmlx5's. The bar of a post is 10 more than C and at most 3 % more \
             (of `wr_write_value` 12 and 5 %), of a completion 4 and 4 % (of an extended queue 5, with fields a fifth; see \
             above), of one `untrusted_…` request 38 %, some 120 instructions, of one in a list 30 %, some 55. `register` \
             and `create_qp` may have a tenth more than libibverbs' own: what was asked for is checked, and parents are \
             kept, around calls that take the kernel microseconds."
        }
        _ => {
            "Of a request or a completion, exact. The bar is a part of C's: 0.25 of a post, 0.22 of an inline one, 0.30 of a \
             list, 0.40 of receives, 0.35 of a completion, 0.45 of one with data, 0.20 of an empty poll; of a shared \
             receive queue, whose chain is to be kept too, 0.55 to 0.65. The floor is an estimate of the least \
             that the work takes with stores of 16 bytes."
        }
    }
}
