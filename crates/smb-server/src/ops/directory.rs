//! QUERY_DIRECTORY ([MS-SMB2] 3.3.5.18).

use ropeway_smb_wire::query_directory::{QueryDirectoryRequest, QueryDirectoryResponse};

use super::context::{Context, Outcome};
use crate::files::directory::query_directory;
use crate::state::workers::JobClass;

pub(super) fn query(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(QueryDirectoryRequest::decode)?;
    let open = context.open(request.file_id)?;
    context
        .protocol
        .check_size(&context.request.header, request.output_buffer_length as usize)?;
    let session = context.session();
    let apple = context
        .shared
        .sessions()
        .get(session)
        .is_some_and(|one| one.apple_listings);
    let token = match apple {
        true => Some(context.token()?),
        false => None,
    };
    context.class = JobClass::Reads;
    context.reply_from_afar(
        move || query_directory(&open, &request, open.share.name_view(), token.as_deref()),
        |output, w| QueryDirectoryResponse { output }.encode(w),
    )
}
