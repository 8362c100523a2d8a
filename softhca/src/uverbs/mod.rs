//! The kernel's side of the uverbs interface: what an `ioctl(RDMA_VERBS_IOCTL)` means.

pub(crate) mod abi;
mod ah;
pub(crate) mod attrs;
mod cq;
mod device;
mod handles;
mod mr;
mod names;
mod pd;
mod qp;
mod srq;
mod write;

use crate::model::Model;
use abi::ids as id;
use attrs::Attrs;
use libc::c_int;
use std::cell::RefCell;

/// How a command ended: an errno on failure.
pub(crate) type Outcome = Result<(), c_int>;

/// One command of one context.
pub(crate) struct Call<'a> {
    model: &'a mut Model,
    ctx: u32,
    attrs: Attrs,
    /// What the log says: objects named, the object made, and more.
    named: RefCell<Vec<String>>,
    made: String,
    notes: Vec<String>,
}

/// Executes a command of context `ctx`.
pub(crate) fn execute(model: &mut Model, ctx: u32, attrs: Attrs) -> Outcome {
    let mut call =
        Call { model, ctx, attrs, named: RefCell::default(), made: String::new(), notes: Vec::new() };
    let done = match call.model.faults.on_verb() {
        Some(e) => {
            call.note(|| "by a fault".to_owned());
            Err(e)
        }
        None => call.run(),
    };
    // A change of state may have made the device work.
    call.model.close_sessions();
    if call.model.log_is_on() {
        let text = call.text();
        call.model.log(|| match done {
            Ok(()) => text,
            Err(e) => format!("{text}: {}", names::of_error(e)),
        });
    }
    done
}

impl Call<'_> {
    fn run(&mut self) -> Outcome {
        let (object, method) = self.attrs.command();
        match (object, method) {
            (id::DEVICE, id::INVOKE_WRITE) => self.invoke_write(),
            (id::DEVICE, id::QUERY_PORT) => self.query_port(),
            (id::DEVICE, id::GET_CONTEXT) => self.get_context(),
            (id::DEVICE, id::QUERY_CONTEXT) => self.query_context(),
            (id::DEVICE, id::QUERY_GID_TABLE) => self.query_gid_table(),
            (id::DEVICE, id::QUERY_GID_ENTRY) => self.query_gid_entry(),
            (id::ASYNC_EVENT, 0) => self.alloc_async_fd(),
            (id::PD, 0) => self.dealloc_pd(),
            (id::PD, id::PD_QUERY) => self.query_pd(),
            (id::MR, id::MR_DESTROY) => self.dereg_mr(),
            (id::MR, id::QUERY_MR) => self.query_mr(),
            (id::MR, id::REG_MR) => self.reg_mr_ex(),
            // Device memory, advice (ODP) and dmabuf are not modelled: a device without the feature says so.
            (id::MR, _) => Err(libc::EOPNOTSUPP),
            (id::MW, 0) => self.dealloc_mw(),
            (id::XRCD, 0) => self.close_xrcd(),
            (id::AH, 0) => self.destroy_ah(),
            (id::CQ, 0) => self.create_cq(),
            (id::CQ, 1) => self.destroy_cq(),
            (id::SRQ, 0) => self.create_srq(),
            (id::SRQ, 1) => self.destroy_srq(),
            (id::QP, 0) => self.create_qp(),
            (id::QP, 1) => self.destroy_qp(),
            (id::UAR, id::UAR_ALLOC) => self.alloc_uar(),
            (id::UAR, id::UAR_FREE) => self.free_uar(),
            (id::DEVX | id::DEVX_OBJ | id::DEVX_UMEM | id::VAR | id::PP, _) => Err(libc::EOPNOTSUPP),
            (id::DM | id::FLOW | id::FLOW_ACTION | id::COUNTERS | id::WQ | id::RWQ_IND_TBL, _) => {
                Err(libc::EOPNOTSUPP)
            }
            _ => Err(libc::EPROTONOSUPPORT),
        }
    }
}
