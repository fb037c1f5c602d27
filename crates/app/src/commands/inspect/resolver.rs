//! `mitra inspect resolver`: what each resolver does with a name.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use mitra_inspect::Error;
use mitra_inspect::resolver::trace::Query;
use mitra_inspect::resolver::{self, Environment, Host};
use serde_json::json;

use crate::cli::InspectResolverArgs;
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::progress::Progress;
use crate::render::inspect::resolver as render;
use crate::render::style::Style;

/// Predicts, asks and prints.
pub fn run(args: &InspectResolverArgs, style: &Style) -> Result<()> {
    resolver::check_name(&args.name).map_err(|error| usage(error.to_string()))?;
    let environment = if args.root == Path::new("/") { environment() } else { Environment::default() };
    let host = Host::read(&args.root, environment).map_err(|error| match &error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => usage(error.to_string()),
        _ => error.into(),
    })?;
    let report = if args.no_queries {
        resolver::report(&host, &args.name, None)
    } else {
        let _progress = Progress::new("asking the name servers");
        let patience = resolver::patience(&host);
        let mut asker = |queries: &[Query]| resolver::ask::all(queries, patience);
        resolver::report(&host, &args.name, Some(&mut asker))
    };
    if args.json {
        return print_json(&json!({ "schema": "mitra.resolver/1", "report": report }));
    }
    print(&render::text(&report, args.limit, style))
}

/// What a program started from here would have.
fn environment() -> Environment {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    Environment {
        localdomain: variable("LOCALDOMAIN"),
        res_options: variable("RES_OPTIONS"),
        hostaliases: variable("HOSTALIASES"),
        godebug: variable("GODEBUG"),
    }
}
