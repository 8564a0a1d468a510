"""A few marks of SVG: enough for axes, lines, bars and words."""
from html import escape

INK, GRID = "#222222", "#dddddd"


class Svg:
    def __init__(self, width, height):
        self.width, self.height = width, height
        # A white ground, so that it reads on a dark page too.
        self.marks = [f'<rect width="{width}" height="{height}" fill="white"/>']

    def line(self, x1, y1, x2, y2, color=GRID, width=1):
        self.marks.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{color}" stroke-width="{width}"/>')

    def path(self, points, color, width=2, dash=""):
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.marks.append(f'<polyline points="{joined}" fill="none" stroke="{color}" '
                          f'stroke-width="{width}"{dashed}/>')

    def dot(self, x, y, color, radius=3):
        self.marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{color}"/>')

    def bar(self, x, y, width, height, color):
        self.marks.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                          f'height="{height:.1f}" fill="{color}"/>')

    def text(self, x, y, words, anchor="start", size=12, bold=False, turned=False):
        weight = ' font-weight="bold"' if bold else ""
        turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
        self.marks.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
                          f'font-size="{size}"{weight}{turn}>{escape(words)}</text>')

    def save(self, path):
        with open(path, "w") as out:
            out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" '
                      f'height="{self.height}" viewBox="0 0 {self.width} {self.height}" '
                      f'font-family="sans-serif" fill="{INK}">\n')
            out.write("\n".join(self.marks) + "\n</svg>\n")
