"""A model that asks the database of this program, through a connection that is open here.

python database.py
"""

import asyncio
import sqlite3
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext

from toolbridge import ClaudeCodeModel


@dataclass
class Shop:
    """What the tools work with. The connection never leaves this process."""

    database: sqlite3.Connection


class Order(BaseModel):
    number: int
    customer: str
    total: float


agent = Agent(ClaudeCodeModel(), deps_type=Shop)


# It changes nothing, so the CLI may ask for several orders at once.
@agent.tool(metadata={"read_only": True})
async def find_order(ctx: RunContext[Shop], number: int) -> Order:
    """Looks an order up by its number."""
    query = "SELECT number, customer, total FROM orders WHERE number = ?"
    row = ctx.deps.database.execute(query, (number,)).fetchone()
    if row is None:
        raise ModelRetry(f"there is no order {number}; ask for another one")
    return Order(number=row[0], customer=row[1], total=row[2])


@agent.tool
async def set_total(ctx: RunContext[Shop], number: int, total: float) -> str:
    """Changes the total of an order."""
    changed = ctx.deps.database.execute("UPDATE orders SET total = ? WHERE number = ?", (total, number))
    ctx.deps.database.commit()
    return f"{changed.rowcount} order changed"


def open_shop() -> Shop:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT, total REAL)")
    database.execute("INSERT INTO orders VALUES (17, 'Ada', 9.5)")
    return Shop(database)


async def main() -> None:
    shop = open_shop()
    try:
        result = await agent.run("Double the total of order 17, and tell me about it.", deps=shop)
        print(result.output)
        print("in the database:", shop.database.execute("SELECT * FROM orders").fetchall())
    finally:
        shop.database.close()


if __name__ == "__main__":
    asyncio.run(main())
