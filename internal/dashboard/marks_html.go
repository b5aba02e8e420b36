package dashboard

import g "maragu.dev/gomponents"

// The drawings of the pages that never change.

const smallMark = `<svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">`

func goodMark() g.Node { return raw(smallMark + `<path d="m3 8.5 3.5 3.5L13 4.5"/></svg>`) }

func badMark() g.Node { return raw(smallMark + `<path d="m4 4 8 8m0-8-8 8"/></svg>`) }

func openMark() g.Node {
	return raw(smallMark + `<circle cx="8" cy="8" r="5.5"/><path d="M8 5v3l2 2"/></svg>`)
}

func lockedMark() g.Node {
	return raw(smallMark + `<rect x="3.5" y="7.5" width="9" height="6" rx="1.5"/>` +
		`<path d="M5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5"/></svg>`)
}

func unlockedMark() g.Node {
	return raw(smallMark + `<rect x="3.5" y="7.5" width="9" height="6" rx="1.5"/>` +
		`<path d="M5.5 7.5V5a2.5 2.5 0 0 1 4.800-1"/></svg>`)
}

func brandMark() g.Node {
	return raw(`<svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true">` +
		`<rect class="mark" width="32" height="32" rx="8"/>` +
		`<path class="on" d="M7 12.5A3.5 3.5 0 0 1 10.5 9H21a2 2 0 0 1 2 2v1.5H10.5a1 1 0 0 0 0 2H24` +
		`a1.5 1.5 0 0 1 1.5 1.5v6a1.5 1.5 0 0 1-1.5 1.5H10.5A3.5 3.5 0 0 1 7 20z"/>` +
		`<circle class="mark" cx="21" cy="19" r="1.6"/></svg>`)
}

func alertMark() g.Node {
	return raw(`<svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">` +
		`<path d="M10 2.5 18.5 17h-17z"/>` +
		`<path class="on" d="M9.25 8h1.5v4.5h-1.5zm0 5.5h1.5V15h-1.5z"/></svg>`)
}

// barsMark stands where the plot of the spending will be.
func barsMark() g.Node {
	return raw(`<svg viewBox="0 0 120 64" width="150" height="80" aria-hidden="true">` +
		`<path class="base" d="M4 60h112"/>` +
		`<rect class="held" x="14" y="40" width="14" height="20" rx="2"/>` +
		`<rect class="held" x="38" y="28" width="14" height="32" rx="2"/>` +
		`<rect class="spent" x="62" y="34" width="14" height="26" rx="2"/>` +
		`<rect class="spent" x="86" y="14" width="14" height="46" rx="2"/></svg>`)
}

func legend() g.Node {
	return raw(`<p class="legend quiet"><span><svg width="12" height="12" aria-hidden="true">` +
		`<rect class="spent" width="12" height="12" rx="2"/></svg> spent</span> ` +
		`<span><svg width="12" height="12" aria-hidden="true">` +
		`<rect class="held" width="12" height="12" rx="2"/></svg> held until the outcome is known</span></p>`)
}

// hatch is how what is held is filled.
func hatch() g.Node {
	return raw(`<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" ` +
		`patternTransform="rotate(45)"><rect class="ground" width="6" height="6"/>` +
		`<rect class="stripe" width="2.5" height="6"/></pattern></defs>`)
}
