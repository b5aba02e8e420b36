package dashboard

import (
	"fmt"

	g "maragu.dev/gomponents"
)

// The pages are written with these. gomponents escapes texts and the values of attributes. What else is
// needed is kept by three rules. raw takes constants and our own style sheet. An address is a constant or
// begins with frame.at, so that no text of a stranger says where it leads. No attribute is a script or a
// style.
//
// The compiler copies each function of gomponents, and the closure in it, to each place that calls it: the
// program would be 0.9 MB larger. These are not copied.

//go:noinline
func el(name string, children ...g.Node) g.Node { return g.El(name, children...) }

//go:noinline
func attr(name string, value ...string) g.Node { return g.Attr(name, value...) }

//go:noinline
func text(words string) g.Node { return g.Text(words) }

//go:noinline
func raw(html string) g.Node { return g.Raw(html) }

func textf(format string, values ...any) g.Node { return text(fmt.Sprintf(format, values...)) }

func class(names string) g.Node { return attr("class", names) }

func href(address string) g.Node { return attr("href", address) }
