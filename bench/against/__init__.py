"""The present checkout against an older commit of itself: `make bench AGAINST=COMMIT [ROWS="latency start"]`.

`build` makes the older side, outside of the checkout; `trials` says what a turn of each row does; `turns` lets both
sides take turns; `pairs` says what came of it. What measures is always the present checkout's. What is measured is a
broker (each side's own, with the same client) or a client (each side's own, on the same broker).
"""
