//! The QEMU process and the channels between it and us.

use crate::kernel::Kernel;
use crate::program::search_path;
use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const PROGRAM: &str = "qemu-system-x86_64";

/// Mitigations, self-tests and address randomisation only cost boot time in a machine that lives for seconds.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr tsc=reliable \
     no_timer_check cryptomgr.notests random.trust_cpu=on";

/// What runs the guest's code on one processor, whose clock is the number of its instructions, 2 ns each, as long as it
/// has some to run. It stands in for the name of an accelerator.
pub(super) const COUNTED: &str = "icount";

/// A running machine. Dropping it ends the machine.
pub(super) struct Qemu {
    child: Child,
}

/// The four ways out of the machine.
pub(super) struct Channels {
    /// What the kernel says.
    pub(super) console: UnixStream,
    /// Lines from `guest.sh`.
    pub(super) control: UnixStream,
    /// The command's standard output.
    pub(super) out: UnixStream,
    /// The command's standard error.
    pub(super) err: UnixStream,
}

impl Qemu {
    pub(super) fn start(kernel: &Kernel, initrd: &[u8], accelerator: &str) -> Result<(Self, Channels)> {
        // The folder goes as soon as QEMU has opened what is in it, so nothing stays behind if we are killed later.
        let folder = ScratchFolder::new()?;
        let listen = |name: &str| {
            let path = folder.0.join(name);
            let listener = UnixListener::bind(&path)
                .with_context(|| format!("cannot make the socket {}", path.display()))?;
            listener.set_nonblocking(true).context("cannot set up a socket")?;
            Ok::<_, anyhow::Error>((listener, path))
        };
        let sockets = [listen("console")?, listen("ctl")?, listen("out")?, listen("err")?];
        let initrd_path = folder.0.join("initrd");
        fs::write(&initrd_path, initrd).context("cannot write the initrd")?;
        let initrd = File::open(&initrd_path).context("cannot open the initrd")?;

        // If we die, the kernel ends the machine.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", PROGRAM]).args(arguments(kernel, accelerator, &sockets));
        command.env("PATH", search_path()).stdin(initrd).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().context("cannot run setpriv (package util-linux)")?;
        let mut qemu = Self { child };
        let [console, control, out, err] = sockets;
        let channels = Channels {
            console: qemu.accept(&console.0)?,
            control: qemu.accept(&control.0)?,
            out: qemu.accept(&out.0)?,
            err: qemu.accept(&err.0)?,
        };
        // QEMU's own messages: rare, and nothing of the command's output.
        if let Some(mut messages) = qemu.child.stderr.take() {
            thread::spawn(move || io::copy(&mut messages, &mut io::stderr()));
        }
        Ok((qemu, channels))
    }

    /// Waits for QEMU to connect.
    fn accept(&mut self, listener: &UnixListener) -> Result<UnixStream> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).context("cannot set up a socket")?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot reach QEMU"),
            }
            if let Some(status) = self.child.try_wait().context("cannot wait for QEMU")? {
                let mut message = String::new();
                if let Some(mut messages) = self.child.stderr.take() {
                    messages.read_to_string(&mut message).context("cannot read QEMU's messages")?;
                }
                bail!(
                    "{PROGRAM} did not start ({status}): {}\n`cargo xtask setup` installs it",
                    message.trim()
                );
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Both fail only if the machine has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn arguments(kernel: &Kernel, accelerator: &str, sockets: &[(UnixListener, PathBuf); 4]) -> Vec<OsString> {
    let (accelerator, processors) = match accelerator {
        "tcg" => ("tcg,thread=multi", "2"),
        COUNTED => ("tcg,thread=single", "1"),
        other => (other, "2"),
    };
    // Without five-level page tables an emulated processor walks them faster.
    let mut arguments: Vec<OsString> = [
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-smp",
        processors,
        "-m",
        "3G",
        "-cpu",
        "max,la57=off",
    ]
    .map(OsString::from)
    .to_vec();
    let mut option = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    option("-accel", accelerator.into());
    if processors == "1" {
        // Without sleeping, the clock leaps to the next timer whenever the guest has nothing to do: while it waits for
        // a file of a busy host, minutes pass there, and with them every limit.
        option("-icount", "shift=1,sleep=on".into());
    }
    option("-kernel", kernel.boot_image().into());
    // The initrd is our unlinked file.
    option("-initrd", "/proc/self/fd/0".into());
    option("-append", KERNEL_ARGUMENTS.into());
    option("-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap".into());
    option("-device", "virtio-9p-pci,fsdev=host,mount_tag=host".into());
    option("-device", "virtio-rng-pci".into());
    option("-device", "virtio-serial-pci".into());
    for (_, path) in sockets {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut chardev = OsString::from(format!("socket,id={name},path="));
        chardev.push(path);
        option("-chardev", chardev);
        match name.as_str() {
            "console" => option("-serial", "chardev:console".into()),
            _ => option("-device", format!("virtserialport,chardev={name},name=ibv.{name}").into()),
        }
    }
    arguments
}

/// A folder that only we can enter, removed on drop.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ibv-vm-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // Nothing depends on its being gone.
        let _ = fs::remove_dir_all(AsRef::<Path>::as_ref(&self.0));
    }
}
