//! What RDMA devices there are, and what they and their ports are: prints what `ibv_devinfo` does.

#![forbid(unsafe_code)]

#[path = "common/cli.rs"]
mod cli;

use std::io::{self, Write};
use std::process::ExitCode;
use std::{fs, str};

use cli::{NO_DEVICE, Result};
use ibv::{Context, Device, DeviceList, LinkLayer, Mtu};
use lexopt::prelude::*;

const NAME: &str = "devinfo";

const HELP: &str = "\
Prints what RDMA devices there are, and what they and their ports are.

  devinfo [OPTION]...

  -d, --ib-dev=NAME    only this device (default: all)
  -i, --ib-port=PORT   only this port of each (default: all)
  -l, --list           only the names of the devices
  -h, --help           print this";

/// What was asked for.
#[derive(Default)]
struct Options {
    device: Option<String>,
    /// 0: all.
    port: u8,
    list: bool,
}

fn main() -> ExitCode {
    cli::main(NAME, || {
        let mut out = io::stdout().lock();
        match parse()? {
            Some(options) => run(&options, &mut out),
            None => Ok(writeln!(out, "{HELP}")?),
        }
    })
}

/// `None` if help was asked for.
fn parse() -> Result<Option<Options>> {
    let mut options = Options::default();
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('d') | Long("ib-dev") => options.device = Some(arguments.value()?.string()?),
            Short('i') | Long("ib-port") => {
                let port = arguments.value()?.string()?;
                options.port = match port.parse() {
                    Ok(number) if number > 0 => number,
                    _ => return Err(format!("--ib-port {port}: a number of at least 1").into()),
                };
            }
            Short('l') | Long("list") => options.list = true,
            Short('h') | Long("help") => return Ok(None),
            Short('v') | Long("verbose") => {
                return Err("--verbose: not done here; `ibv_devinfo -v` prints all attributes".into());
            }
            other => return Err(format!("{}; --help tells the options", other.unexpected()).into()),
        }
    }
    Ok(Some(options))
}

fn run(options: &Options, out: &mut impl Write) -> Result<()> {
    let devices = ibv::devices()?;
    if options.list {
        return print_names(&devices, out);
    }
    if devices.is_empty() {
        return Err(NO_DEVICE.into());
    }
    match &options.device {
        Some(name) => print_device(&devices.by_name(name)?, options.port, out),
        None => devices.iter().try_for_each(|device| print_device(&device, options.port, out)),
    }
}

fn print_names(devices: &DeviceList, out: &mut impl Write) -> Result<()> {
    let plural = if devices.len() == 1 { "" } else { "s" };
    writeln!(out, "{} HCA{plural} found:", devices.len())?;
    for device in devices {
        writeln!(out, "\t{}", device.name())?;
    }
    writeln!(out)?;
    Ok(())
}

fn print_device(device: &Device<'_>, port: u8, out: &mut impl Write) -> Result<()> {
    let ctx = device.open()?;
    let attr = ctx.device_attr();
    let ports = attr.phys_port_cnt();
    if u32::from(port) > ports {
        return Err(format!("--ib-port {port}: {} has {ports}", device.name()).into());
    }
    writeln!(out, "hca_id:\t{}", device.name())?;
    writeln!(out, "\ttransport:\t\t\t{} ({})", device.transport_type(), device.transport_type().0)?;
    writeln!(out, "\tfw_ver:\t\t\t\t{}", attr.fw_ver())?;
    writeln!(out, "\tnode_guid:\t\t\t{}", attr.node_guid())?;
    writeln!(out, "\tsys_image_guid:\t\t\t{}", attr.sys_image_guid())?;
    writeln!(out, "\tvendor_id:\t\t\t{:#06x}", attr.vendor_id())?;
    writeln!(out, "\tvendor_part_id:\t\t\t{}", attr.vendor_part_id())?;
    writeln!(out, "\thw_ver:\t\t\t\t0x{:X}", attr.hw_ver())?;
    if let Some(board) = board_id(device) {
        writeln!(out, "\tboard_id:\t\t\t{board}")?;
    }
    writeln!(out, "\tphys_port_cnt:\t\t\t{ports}")?;
    for number in (1..=u8::try_from(ports)?).filter(|&number| port == 0 || port == number) {
        print_port(&ctx, number, out)?;
    }
    writeln!(out)?;
    Ok(())
}

/// The model, where the driver tells it.
fn board_id(device: &Device<'_>) -> Option<String> {
    let text = fs::read(device.sysfs_path().join("board_id")).ok()?;
    let text = str::from_utf8(&text).ok()?.trim_end_matches('\n');
    (!text.is_empty()).then(|| text.to_owned())
}

fn print_port(ctx: &Context, number: u8, out: &mut impl Write) -> Result<()> {
    let port = ctx.query_port(number)?;
    writeln!(out, "\t\tport:\t{number}")?;
    writeln!(out, "\t\t\tstate:\t\t\t{} ({})", port.state(), port.state().0)?;
    writeln!(out, "\t\t\tmax_mtu:\t\t{}", mtu(port.max_mtu()))?;
    writeln!(out, "\t\t\tactive_mtu:\t\t{}", mtu(port.active_mtu()))?;
    writeln!(out, "\t\t\tsm_lid:\t\t\t{}", port.sm_lid())?;
    writeln!(out, "\t\t\tport_lid:\t\t{}", port.lid())?;
    writeln!(out, "\t\t\tport_lmc:\t\t{:#04x}", port.lmc())?;
    writeln!(out, "\t\t\tlink_layer:\t\t{}", link_layer(port.link_layer()))?;
    Ok(())
}

fn mtu(mtu: Mtu) -> String {
    match mtu.bytes() {
        0 => format!("invalid MTU ({})", mtu.code()),
        bytes => format!("{bytes} ({})", mtu.code()),
    }
}

/// A driver that says nothing is one of InfiniBand.
fn link_layer(layer: LinkLayer) -> LinkLayer {
    if layer == LinkLayer::UNSPECIFIED { LinkLayer::INFINIBAND } else { layer }
}
