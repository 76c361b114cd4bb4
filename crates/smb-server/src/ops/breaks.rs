//! OPLOCK_BREAK: acknowledgments ([MS-SMB2] 3.3.5.22).

use ropeway_smb_wire::oplock_break::BreakAcknowledgment;

use super::context::{Context, Outcome};

pub(super) fn acknowledge(context: &mut Context<'_>) -> Outcome {
    let acknowledgment = context.decode(BreakAcknowledgment::decode)?;
    let now = context.shared.now_ms();
    match acknowledgment {
        BreakAcknowledgment::Oplock(ack) => {
            let open = context.open(ack.file_id)?;
            let id = open.hub_id();
            let answer = context.shared.hub().oplock_break_ack(now, id, ack.oplock_level)?;
            context.reply(|w| BreakAcknowledgment::Oplock(answer).encode(w))
        }
        BreakAcknowledgment::Lease(ack) => {
            let client = context.client();
            let answer = context.shared.hub().lease_break_ack(now, client, &ack)?;
            context.reply(|w| BreakAcknowledgment::Lease(answer).encode(w))
        }
    }
}
