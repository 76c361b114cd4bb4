//! An assembler for BPF instructions (linux/bpf.h, Documentation/bpf/standardization/instruction-set.rst).
//!
//! Only what [`super::programs`] needs. Jumps go to labels; [`Assembler::finish`] resolves them.

/// A register. R0 holds results, R1 to R4 arguments, R6 to R9 survive calls, R10 is the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    /// Frame pointer, read-only; the stack is 512 bytes below it.
    Fp = 10,
}

/// A function of the kernel (`enum bpf_func_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    KtimeGetNs = 5,
    GetCurrentPidTgid = 14,
    GetCurrentComm = 16,
    GetCurrentTask = 35,
    ProbeReadUser = 112,
    ProbeReadKernel = 113,
    ProbeReadUserStr = 114,
    RingbufOutput = 130,
    RingbufQuery = 134,
}

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Width {
    Word = 0x00,
    Double = 0x18,
}

/// A condition of a jump that compares a register with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum When {
    Equal = 0x15,
    NotEqual = 0x55,
    Above = 0x25,
    BitsSet = 0x45,
    SignedLess = 0xc5,
    SignedGreater = 0x65,
}

/// A place that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Descriptor of a map, in the kernel's numbering of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MapFd(pub(super) i32);

/// A program under construction.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<u64>,
    /// Place of each label, once it is known.
    labels: Vec<Option<usize>>,
    /// Jumps: place and label.
    jumps: Vec<(usize, Label)>,
}

fn instruction(opcode: u8, to: Reg, from: Reg, offset: i16, constant: i32) -> u64 {
    u64::from(opcode)
        | u64::from(to as u8) << 8
        | u64::from(from as u8) << 12
        | u64::from(offset as u16) << 16
        | u64::from(constant as u32) << 32
}

impl Assembler {
    fn push(&mut self, opcode: u8, to: Reg, from: Reg, offset: i16, constant: i32) -> &mut Self {
        self.code.push(instruction(opcode, to, from, offset, constant));
        self
    }

    /// `to = from`
    pub(super) fn mov(&mut self, to: Reg, from: Reg) -> &mut Self {
        self.push(0xbf, to, from, 0, 0)
    }

    /// `to = constant`
    pub(super) fn set(&mut self, to: Reg, constant: i32) -> &mut Self {
        self.push(0xb7, to, Reg::R0, 0, constant)
    }

    /// `to += constant`
    pub(super) fn add(&mut self, to: Reg, constant: i32) -> &mut Self {
        self.push(0x07, to, Reg::R0, 0, constant)
    }

    /// `to += from`
    pub(super) fn add_reg(&mut self, to: Reg, from: Reg) -> &mut Self {
        self.push(0x0f, to, from, 0, 0)
    }

    /// `to -= from`
    pub(super) fn subtract(&mut self, to: Reg, from: Reg) -> &mut Self {
        self.push(0x1f, to, from, 0, 0)
    }

    /// `to &= constant`
    pub(super) fn and(&mut self, to: Reg, constant: i32) -> &mut Self {
        self.push(0x57, to, Reg::R0, 0, constant)
    }

    /// `to <<= bits`
    pub(super) fn shift_left(&mut self, to: Reg, bits: i32) -> &mut Self {
        self.push(0x67, to, Reg::R0, 0, bits)
    }

    /// `to >>= bits`, unsigned
    pub(super) fn shift_right(&mut self, to: Reg, bits: i32) -> &mut Self {
        self.push(0x77, to, Reg::R0, 0, bits)
    }

    /// `to = *(from + offset)`, extended with zeroes
    pub(super) fn load(&mut self, width: Width, to: Reg, from: Reg, offset: i16) -> &mut Self {
        self.push(0x61 | width as u8, to, from, offset, 0)
    }

    /// `*(to + offset) = from`
    pub(super) fn store(&mut self, width: Width, to: Reg, offset: i16, from: Reg) -> &mut Self {
        self.push(0x63 | width as u8, to, from, offset, 0)
    }

    /// `*(to + offset) = constant`
    pub(super) fn store_constant(&mut self, width: Width, to: Reg, offset: i16, constant: i32) -> &mut Self {
        self.push(0x62 | width as u8, to, Reg::R0, offset, constant)
    }

    /// `*(to + offset) += from`, atomically, 64 bits
    pub(super) fn atomic_add(&mut self, to: Reg, offset: i16, from: Reg) -> &mut Self {
        self.push(0xdb, to, from, offset, 0)
    }

    /// `to = map`
    pub(super) fn map(&mut self, to: Reg, map: MapFd) -> &mut Self {
        // BPF_PSEUDO_MAP_FD is 1, in the place of the source register.
        self.push(0x18, to, Reg::R1, 0, map.0);
        self.code.push(0);
        self
    }

    /// `R0 = helper(R1, …, R4)`
    pub(super) fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(0x85, Reg::R0, Reg::R0, 0, helper as i32)
    }

    /// Ends the program with R0 = 0.
    pub(super) fn exit(&mut self) -> &mut Self {
        self.set(Reg::R0, 0);
        self.push(0x95, Reg::R0, Reg::R0, 0, 0)
    }

    /// Makes a label without a place.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label here.
    pub(super) fn place(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = Some(self.code.len());
        self
    }

    /// Jumps if a condition holds.
    pub(super) fn jump_if(&mut self, when: When, register: Reg, constant: i32, label: Label) -> &mut Self {
        self.jumps.push((self.code.len(), label));
        self.push(when as u8, register, Reg::R0, 0, constant)
    }

    /// Jumps.
    pub(super) fn jump(&mut self, label: Label) -> &mut Self {
        self.jumps.push((self.code.len(), label));
        self.push(0x05, Reg::R0, Reg::R0, 0, 0)
    }

    /// Returns the program.
    pub(super) fn finish(mut self) -> Vec<u64> {
        for (place, label) in self.jumps {
            let target = self.labels[label.0].expect("every label of a program has a place");
            let distance = target as i64 - place as i64 - 1;
            let distance = i16::try_from(distance).expect("programs are short");
            self.code[place] |= u64::from(distance as u16) << 16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_the_kernels_layout() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.mov(Reg::R6, Reg::R1)
            .jump_if(When::Equal, Reg::R6, 7, end)
            .load(Width::Double, Reg::R2, Reg::R6, 8)
            .store(Width::Word, Reg::Fp, -4, Reg::R2)
            .call(Helper::KtimeGetNs)
            .place(end)
            .exit();
        // As disassembled by llvm-objdump.
        let expected = [
            0x0000_0000_0000_16bf,
            0x0000_0007_0003_0615,
            0x0000_0000_0008_6279,
            0x0000_0000_fffc_2a63,
            0x0000_0005_0000_0085,
            0x0000_0000_0000_00b7,
            0x0000_0000_0000_0095,
        ];
        assert_eq!(asm.finish(), expected);
    }

    #[test]
    fn jumps_lead_backwards_too() {
        let mut asm = Assembler::default();
        let begin = asm.label();
        asm.place(begin).jump(begin);
        assert_eq!(asm.finish(), [0x0000_0000_ffff_0005]);
    }
}
