//! `mitra upload`.

use clap::Args;

use super::{FolderArgs, examples};

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "upload",
    "Segments become objects PREFIX/HOST/DAY/NUMBER-SINCE-UNTIL.seg; what the bucket lists is not stored again. The last minutes, which are \
                         not sealed yet, and captures stay on this machine. Nothing is deleted: a lifecycle rule of the bucket decides how long \
                         segments are kept. A table [[remote]] of mitra.toml has endpoint, region and key-file (ID:SECRET); without one the \
                         environment counts: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL."
))]
pub struct UploadArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    /// The bucket, and what the names of all objects begin with [default: the table [[remote]] with upload = true]
    #[arg(long, value_name = "s3://BUCKET/PREFIX")]
    pub to: Option<String>,
    /// Store what is not there yet, and end
    #[arg(long)]
    pub once: bool,
}
