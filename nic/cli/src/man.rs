//! `urxe man`: the manual pages, made from the same definitions as `--help`.
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// What packages call; a person reads the pages with man(1).
pub(crate) const COMMAND: &str = "man";
/// The section of the manual: programs that users run.
const SECTION: &str = "1";

/// Writes urxe.1 and a page for each subcommand into the folder `out`, which is made where it is
/// not there. Without one, urxe(1) is printed.
///
/// # Errors
/// When the folder or a file cannot be written.
pub(crate) fn write(command: Command, out: Option<&Path>) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let shown: Vec<Command> = command
        .get_subcommands()
        .filter(|each| !each.is_hide_set())
        .cloned()
        .collect();
    let names: Vec<String> = std::iter::once(&command)
        .chain(&shown)
        .map(page_name)
        .collect();
    let Some(out) = out else {
        let page = page(&command, &names)?;
        return Ok(std::io::stdout().write_all(&page)?);
    };
    fs::create_dir_all(out).with_context(|| format!("cannot make the folder {}", out.display()))?;
    for each in std::iter::once(&command).chain(&shown) {
        let file = out.join(format!("{}.{SECTION}", page_name(each)));
        fs::write(&file, page(each, &names)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// `urxe` or `urxe-run`, as man(1) wants it.
fn page_name(command: &Command) -> String {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned()
}

/// One page, in roff; `names` are those of all pages.
fn page(command: &Command, names: &[String]) -> Result<Vec<u8>> {
    let own = page_name(command);
    let man = Man::new(command.clone())
        .title(own.to_uppercase())
        .section(SECTION)
        .source(concat!("urxe ", env!("CARGO_PKG_VERSION")))
        .manual("RDMA programs over UDP");
    let mut made = Vec::new();
    man.render(&mut made)?;
    // What stands below the options in `--help`.
    let text = String::from_utf8(made)?.replace(".SH EXTRA\n", ".SH NOTES\n");
    let others: Vec<String> = names
        .iter()
        .filter(|name| **name != own)
        .map(|name| format!("{name}({SECTION})"))
        .collect();
    let mut roff = Roff::new();
    let variables: Vec<_> = command
        .get_arguments()
        .filter_map(|each| Some((each.get_env()?.to_str()?, each.get_long()?)))
        .collect();
    if !variables.is_empty() {
        roff.control("SH", ["ENVIRONMENT"]);
        for (variable, option) in variables {
            roff.control("TP", []);
            roff.text([bold(variable)]);
            roff.text([roman("As "), bold(format!("--{option}")), roman(".")]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(others.join(", "))]);
    let mut page = text.into_bytes();
    roff.to_writer(&mut page)?;
    Ok(page)
}
