//! Colours and strokes of plots. The colours of series are those of Okabe and Ito (2008), which people
//! with colour blindness can distinguish, darker on a light background and lighter on a dark one (4.5:1 for
//! text).

use std::fmt::Write;

/// Colours of series on light and on dark background.
const SERIES: [(&str, &str); 8] = [
    ("#0b62a8", "#5cb3f5"),
    ("#c4500a", "#f2935c"),
    ("#00785a", "#3fc79f"),
    ("#9a4585", "#e29bcd"),
    ("#9a6a00", "#e6b84f"),
    ("#2b8aad", "#93d7f3"),
    ("#5b57a6", "#b1aef0"),
    ("#5e6772", "#a4aeb9"),
];
/// Number of colours.
pub(super) const SERIES_MAX: usize = SERIES.len();
/// Dashes, so that lines differ even without colour.
const DASHES: [&str; SERIES_MAX] = [
    "none",
    "7 3",
    "2 3",
    "9 3 2 3",
    "4 3",
    "12 4",
    "1 4",
    "6 2 1 2 1 2",
];

/// Colours of heat maps, from the least to the largest: viridis, which is even in lightness and can be
/// told apart with colour blindness (van der Walt, Smith 2015).
const HEAT: [&str; HEAT_MAX] = [
    "#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725",
];
/// Number of colours of heat maps.
pub(super) const HEAT_MAX: usize = 9;
/// Colours from this one on have dark text (at least 4.5:1).
pub(super) const HEAT_DARK: usize = 4;

/// Font families; most systems have one of them.
pub(super) const FAMILY: &str =
    "system-ui,-apple-system,'Segoe UI',Roboto,Ubuntu,'Noto Sans','Helvetica Neue',Arial,sans-serif";
/// Style of pictures: their only font is light, so it is drawn a little bolder.
pub(super) const PICTURE_CSS: &str = ".rp{font-family:Ubuntu}.p-t,.p-m,.p-h,.p-v,.p-no,.p-on,.p-off{stroke-width:.3}.p-h{stroke-width:.7}\
     .p-t,.p-v{stroke:#1c2530}.p-h{stroke:#10161d}.p-m{stroke:#566270}.p-no{stroke:#b3261e}.p-on{stroke:#fff}.p-off{stroke:#10161d}";

/// Returns the rules of all classes of plots.
pub(super) fn css(dark: bool) -> String {
    let of = |light: &'static str, other: &'static str| if dark { other } else { light };
    let (ink, strong, muted) = (
        of("#1c2530", "#dfe5ec"),
        of("#10161d", "#f4f7fa"),
        of("#566270", "#9aa6b4"),
    );
    let (grid, axis, ground) = (
        of("#e3e7ec", "#2a323c"),
        of("#8a95a3", "#66727f"),
        of("#ffffff", "#14191f"),
    );
    let (good, bad) = (of("#00694f", "#4fd1a5"), of("#b3261e", "#ff8a80"));
    let mut css = format!(
        ".rp{{font-family:{FAMILY};font-size:12px}}\
         .p-t{{fill:{ink}}}.p-v{{fill:{ink};font-variant-numeric:tabular-nums}}\
         .p-h{{fill:{strong};font-weight:600;font-size:13px}}\
         .p-title{{font-size:15px}}\
         .p-m{{fill:{muted};font-size:11px;font-variant-numeric:tabular-nums}}\
         .p-no{{fill:{bad}}}\
         .p-mark{{stroke-width:2;stroke-linecap:round}}.p-yes{{stroke:{good}}}.p-not{{stroke:{bad}}}\
         .p-ground{{fill:{ground}}}.p-grid{{stroke:{grid};stroke-width:1}}.p-axis{{stroke:{axis};stroke-width:1}}\
         .p-line{{stroke:{muted};stroke-width:1.5}}.p-floor{{stroke:{strong};stroke-width:1.5;stroke-dasharray:4 2.5}}\
         .p-target{{stroke:{bad};stroke-width:1.5;stroke-dasharray:1.5 2}}\
         .p-spread{{stroke:{strong};stroke-width:1;opacity:.75}}\
         .p-pub{{fill:{muted};fill-opacity:.16;stroke:{muted};stroke-width:1}}\
         .p-break{{stroke:{ground};stroke-width:2.5}}\
         .p-hair{{stroke:{axis};stroke-width:1}}.p-s{{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}}\
         .p-old{{stroke-width:1.5;opacity:.8}}.p-other{{stroke:{grid};stroke-width:1}}"
    );
    for (at, (light, other)) in SERIES.iter().enumerate() {
        let color = of(light, other);
        let dash = DASHES[at];
        _ = write!(
            css,
            ".p-f{at}{{fill:{color}}}.p-k{at}{{stroke:{color};stroke-dasharray:{dash}}}"
        );
    }
    for (at, color) in HEAT.iter().enumerate() {
        _ = write!(css, ".p-q{at}{{fill:{color}}}");
    }
    css.push_str(
        ".p-on,.p-off{font-size:11px;font-variant-numeric:tabular-nums}.p-on{fill:#fff}.p-off{fill:#10161d}",
    );
    css
}

/// Returns the colour of a series.
pub(super) fn series_color(at: usize, dark: bool) -> &'static str {
    let (light, other) = SERIES[color(at)];
    if dark { other } else { light }
}

/// Returns the index of the colour of a series.
pub(super) fn color(at: usize) -> usize {
    at % SERIES_MAX
}
