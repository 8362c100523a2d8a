//! Where a message goes.

use super::request::Grh;
use super::wqe::AddressVector;
use crate::config::Link;
use crate::model::Model;

/// A destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A device of this process.
    Local(usize),
    /// A device of another process on the fabric.
    Remote(crate::fabric::Address),
    /// All members of a multicast group.
    Group([u8; 16]),
    Nowhere,
}

impl Model {
    /// Finds the port with LID `lid`, or (with a GRH on RoCE) GID `gid`.
    fn resolve(&self, link: Link, lid: u16, gid: Option<&[u8; 16]>) -> Target {
        if link == Link::InfiniBand {
            let own = self.devices.iter().position(|d| d.link == link && d.lid == lid);
            return match own {
                Some(i) => Target::Local(i),
                None => {
                    self.fabric.as_ref().and_then(|f| f.by_lid(lid)).map_or(Target::Nowhere, Target::Remote)
                }
            };
        }
        let Some(gid) = gid else { return Target::Nowhere };
        let own = self.devices.iter().position(|d| d.link == link && d.gids.iter().any(|g| g.raw == *gid));
        match own {
            Some(i) => Target::Local(i),
            None => self.fabric.as_ref().and_then(|f| f.by_gid(gid)).map_or(Target::Nowhere, Target::Remote),
        }
    }

    /// Where QP `qpn`'s connection leads.
    pub(crate) fn connection(&self, qpn: u32) -> (Target, Option<Grh>) {
        let Some(q) = self.qps.get(qpn) else { return (Target::Nowhere, None) };
        let Some(d) = self.devices.get(q.dev).filter(|d| d.link_up) else { return (Target::Nowhere, None) };
        let a = &q.attr.dest;
        let grh = (a.is_global != 0).then(|| Grh {
            sgid: d.gids.get(usize::from(a.sgid_index)).map_or([0; 16], |g| g.raw),
            dgid: a.dgid,
            flow_label: a.flow_label,
            traffic_class: a.traffic_class,
            hop_limit: a.hop_limit,
        });
        (self.resolve(d.link, a.dlid, grh.as_ref().map(|g| &g.dgid)), grh)
    }

    /// Where a datagram of device `dev` goes.
    pub(crate) fn datagram_target(&self, dev: usize, av: &AddressVector) -> (Target, Option<Grh>) {
        let Some(d) = self.devices.get(dev).filter(|d| d.link_up) else { return (Target::Nowhere, None) };
        let global = av.has_grh || d.link == Link::RoCE;
        let grh = global.then(|| Grh {
            sgid: d.gids.get(usize::from(av.sgid_index)).map_or([0; 16], |g| g.raw),
            dgid: av.rgid,
            flow_label: av.flow_label,
            traffic_class: av.traffic_class,
            hop_limit: av.hop_limit,
        });
        let [first, ..] = av.rgid;
        if global && first == 0xff {
            return (Target::Group(av.rgid), grh);
        }
        (self.resolve(d.link, av.rlid, grh.as_ref().map(|g| &g.dgid)), grh)
    }
}
