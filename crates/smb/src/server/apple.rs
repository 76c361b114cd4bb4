//! The answer to a Mac's `AAPL` context, by which the Finder copies on the server and trusts flushes.

use ropeway_smb_proto::wire::Text;
use ropeway_smb_proto::wire::create_context::{
    AppleReply, AppleReplyMap, AppleServerCaps, AppleServerQuery, AppleVolumeCaps,
};

/// What this server says it is; the Finder picks an icon by it. Samba's choice, so that it is one that is known.
const MODEL: &str = "MacSamba";

/// What to tell of a share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AppleView {
    /// The model to claim.
    pub(crate) model: Option<&'static str>,
    /// Names that differ in case only are different files to clients.
    pub(crate) case_sensitive: bool,
}

/// Answers a server query.
///
/// READ_DIR_ATTR is not offered: it puts the Finder's information into every record of a listing, for which every file
/// would have to be opened. Nor are NFS permissions and file ids as paths.
pub(crate) fn reply(query: &AppleServerQuery, view: AppleView) -> AppleReply {
    let asked = |part| query.request_map.contains(part);
    let mut volume_caps = AppleVolumeCaps::SUPPORTS_FULL_SYNC;
    if view.case_sensitive {
        volume_caps |= AppleVolumeCaps::CASE_SENSITIVE;
    }
    AppleReply {
        server_caps: asked(AppleReplyMap::SERVER_CAPS)
            .then_some(AppleServerCaps::SUPPORTS_OSX_COPYFILE | AppleServerCaps::UNIX_BASED),
        volume_caps: asked(AppleReplyMap::VOLUME_CAPS).then_some(volume_caps),
        model: asked(AppleReplyMap::MODEL_INFO).then(|| Text::from(view.model.unwrap_or(MODEL))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_answered() {
        let mut query = AppleServerQuery {
            request_map: AppleReplyMap::SERVER_CAPS | AppleReplyMap::VOLUME_CAPS | AppleReplyMap::MODEL_INFO,
            client_caps: AppleServerCaps::SUPPORTS_READ_DIR_ATTR,
        };
        let answer = reply(&query, AppleView::default());
        assert_eq!(
            answer.server_caps,
            Some(AppleServerCaps::SUPPORTS_OSX_COPYFILE | AppleServerCaps::UNIX_BASED)
        );
        assert_eq!(answer.volume_caps, Some(AppleVolumeCaps::SUPPORTS_FULL_SYNC));
        assert_eq!(answer.model, Some(MODEL.into()));
        query.request_map = AppleReplyMap::default();
        assert_eq!(reply(&query, AppleView::default()), AppleReply::default());
    }
}
